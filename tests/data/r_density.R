# Oracle for the plug-in bet. Run from the root of the repository:
#
#     Rscript tests/data/r_density.R > tests/data/r_density.csv
#
# For each sample of p-values: R's own bandwidth of the extended sample, the kernel estimate by direct sums (exact),
# cut to [0, 1] and normalised there, and R's density() (binned and interpolated: good to about 1e-3).

set.seed(20120626)
samples <- list(
  one = 0.3,
  two = c(0.2, 0.9),
  three = c(0.05, 0.5, 1),
  five = c(1e-300, 1e-10, 0.001, 0.25, 1),
  ten_equal = rep(0.125, 10),
  ten_uniform = runif(10),
  fifty_uniform = runif(50),
  fifty_small = rbeta(50, 0.3, 3),
  fifty_u = c(rbeta(25, 0.5, 20), rbeta(25, 20, 0.5)),
  fivehundred_uniform = runif(500),
  fivehundred_small = rbeta(500, 0.5, 1),
  fivehundred_large = rbeta(500, 5, 1),
  fivehundred_u = rbeta(500, 0.2, 0.2)
)
points <- c(1e-300, 0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.999, 1)

write <- function(sample, what, at, value)
  cat(sprintf("%s,%s,%.17g,%.17g\n", sample, what, at, value), sep = "")

cat("# Made by: Rscript tests/data/r_density.R > tests/data/r_density.csv\n")
cat("# ", R.version.string, "\n", sep = "")
cat("# bw       bw.nrd0(c(-p, p, 2 - p))\n")
cat("# iqr      1 where bw.nrd0 takes the interquartile branch, else 0\n")
cat("# kernel   mean(dnorm(at, x, bw)) / mean(pnorm(1, x, bw) - pnorm(0, x, bw)), x = c(-p, p, 2 - p)\n")
cat("# density  density(x, bw = bw, kernel = \"gaussian\", n = 1024, from = 0, to = 1), approx() at the point\n")
cat("sample,what,at,value\n")
for (name in names(samples)) {
  p <- samples[[name]]
  p[p <= 0] <- 5e-324
  x <- c(-p, p, 2 - p)
  bw <- bw.nrd0(x)
  write(name, "p", seq_along(p), p)
  write(name, "bw", 0, bw)
  write(name, "iqr", 0, as.numeric(IQR(x) / 1.34 < sd(x)))
  mass <- mean(pnorm(1, x, bw) - pnorm(0, x, bw))
  for (at in points) write(name, "kernel", at, mean(dnorm(at, x, bw)) / mass)
  estimate <- density(x, bw = bw, kernel = "gaussian", n = 1024, from = 0, to = 1)
  for (at in points) write(name, "density", at, approx(estimate$x, estimate$y, at)$y)
}

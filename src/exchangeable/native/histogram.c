/* Histograms of the past p-values: of fixed width, and all dyadic ones at once. */

/* ------------------------------------------------------------------ fixed width */

/* Krichevsky-Trofimov: f = B (c_b + 1/2) / (n + B/2) in bin b, with c_b of the n past p-values in it. */
static void histogram_path(double *counts, int64_t bins, const double *p, int64_t steps, double *out) {
    double B = (double)bins, n = 0.0;
    for (int64_t b = 0; b < bins; b++) n += counts[b];
    for (int64_t i = 0; i < steps; i++) {
        double place = p[i] * B; /* no p, whatever it is, leads outside the counts */
        int64_t b = place >= B ? bins - 1 : place > 0.0 ? (int64_t)place : 0;
        out[i] = ex_log(B * (counts[b] + 0.5) / (n + 0.5 * B));
        counts[b] += 1.0;
        n += 1.0;
    }
}

/* histogram(counts, p, out) */
static const char *histogram(const Arg *in, Arg *out) {
    (void)out;
    REQUIRE(in[0].size > 0, "counts must hold at least 1 number");
    REQUIRE(in[1].size == in[2].size, "out must be as long as p");
    histogram_path(float64s(&in[0]), in[0].size, float64s(&in[1]), in[1].size, float64s(&in[2]));
    return NULL;
}

#define HISTOGRAM_KERNELS ENTRY(histogram, "Dpo"),
#define HISTOGRAM_CONSTANTS

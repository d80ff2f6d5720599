/* Density estimates with the Jackson kernel, a finite cosine sum that is nonnegative and integrates to one:
 *
 *     K_J(x, y) = 1 + sum_{0<k<K} w_k cos(k pi x) cos(k pi y) ,
 *     w_k = 2 ((K - k + 1) cos(pi k/(K + 1)) + sin(pi k/(K + 1)) cot(pi/(K + 1))) / (K + 1) ,   w_0 = 1 .
 *
 * Terms are processed eight at a time: arrays with one item per term are padded to a multiple of eight, with weights 0.
 */

enum { JACKSON_LARGEST = 1024, JACKSON_LARGEST_MARKOV = 256 }; /* orders */

static inline int64_t jackson_padded(int64_t order) { return (order + LANES - 1) / LANES * LANES; }

static void jackson_weights_of(int64_t order, double *out, int64_t size) {
    double turn = 1.0 / ((double)order + 1.0), cotangent = ex_cospi(turn) / ex_sinpi(turn);
    for (int64_t k = 0; k < size; k++) {
        double rest = (double)(order - k + 1), angle = (double)k * turn;
        out[k] = k < order ? 2.0 * (rest * ex_cospi(angle) + ex_sinpi(angle) * cotangent) * turn : 0.0;
    }
    out[0] = 1.0;
}

/* cos(k pi p), and sin(k pi p) if asked for, for k = 0, 1, ... up to a multiple of 8, from cos(pi p) and sin(pi p):
 * eight angles by the addition theorems, then all eight rotated by 8 pi p again and again. Near p = 0 and p = 1 both
 * terms of a sine have the same sign, so that its relative error stays small.
 */
static inline void jackson_waves(double cosine, double sine, int64_t terms, double *cosines, double *sines) {
    double c[LANES] = {1.0, cosine, cosine * cosine - sine * sine}, s[LANES] = {0.0, sine, 2.0 * cosine * sine};
    c[3] = c[2] * cosine - s[2] * sine, s[3] = s[2] * cosine + c[2] * sine;
    c[4] = c[2] * c[2] - s[2] * s[2], s[4] = 2.0 * c[2] * s[2];
    for (int k = 1; k < 4; k++) {
        c[4 + k] = c[k] * c[4] - s[k] * s[4];
        s[4 + k] = s[k] * c[4] + c[k] * s[4];
    }
    Lanes turn_c = lanes_fill(c[4] * c[4] - s[4] * s[4]), turn_s = lanes_fill(2.0 * c[4] * s[4]);
    Lanes all_c = lanes_of(c), all_s = lanes_of(s);
    for (int64_t k = 0; k < terms; k += LANES) {
        lanes_store(cosines + k, all_c);
        if (sines) lanes_store(sines + k, all_s);
        Lanes next = lanes_sub(lanes_mul(all_c, turn_c), lanes_mul(all_s, turn_s));
        all_s = lanes_add(lanes_mul(all_s, turn_c), lanes_mul(all_c, turn_s));
        all_c = next;
    }
}

static inline void jackson_cosines(double cosine, double sine, int64_t terms, double *out) {
    jackson_waves(cosine, sine, terms, out, NULL);
}

/* ------------------------------------------------------------------ one order, one forgetting */

/* (1 + sum_i lam^(n-i) K_J(p, p_i)) / (1 + sum_i lam^(n-i)), lam = forgetting; then learn p.
 * sums[k] = sum_i lam^(n-i) cos(k pi p_i).
 */
static double jackson_kernel_step(double *sums, const double *weights, double forgetting, int64_t terms, double p) {
    double cosines[JACKSON_LARGEST], mass = sums[0];
    jackson_cosines(ex_cospi(p), ex_sinpi(p), terms, cosines);
    Lanes total = lanes_fill(0.0), keep = lanes_fill(forgetting);
    for (int64_t k = 0; k < terms; k += LANES) {
        Lanes row = lanes_load(sums + k), c = lanes_load(cosines + k);
        total = lanes_add(total, lanes_mul(lanes_mul(lanes_load(weights + k), c), row));
        lanes_store(sums + k, lanes_add(lanes_mul(keep, row), c));
    }
    return (1.0 + lanes_sum(total)) / (1.0 + mass);
}

/* The integral of this density from 0 to p or, for p > 1/2, from p to 1:
 *
 *     p + sum_{0<k<K} w_k sin(k pi p)/(k pi) sums[k]/(1 + sums[0])   or   1 - p - (the same sum) .
 */
static double jackson_kernel_integral(const double *sums, const double *weights, int64_t terms, double p) {
    double cosines[JACKSON_LARGEST], sines[JACKSON_LARGEST], total = 0.0;
    jackson_waves(ex_cospi(p), pit_sine(p), terms, cosines, sines);
    for (int64_t k = 1; k < terms; k++) total += weights[k] * (sines[k] / (PI * (double)k)) * sums[k];
    total /= 1.0 + sums[0];
    return p > 0.5 ? pit_rest(p) - total : p + total;
}

/* (1 + sum_t lam^(n-t) K_J(q, p_{t-1}) K_J(p, p_t)) / (1 + sum_t lam^(n-t) K_J(q, p_{t-1})), q the previous p; then
 * learn p. sums[j, k] = sum_t lam^(n-t) cos(j pi p_{t-1}) cos(k pi p_t); `last` holds the cosines of q, zeros at
 * first, and `cosines` those of p. Where the order is a constant, the compiler keeps `folded` in registers.
 */
static inline __attribute__((always_inline)) double jackson_markov_step(const double *last, double *sums,
                                                                        const double *weights, double forgetting,
                                                                        int64_t order, const double *cosines) {
    int64_t terms = jackson_padded(order), blocks = terms / LANES;
    Lanes folded[JACKSON_LARGEST_MARKOV / LANES], keep = lanes_fill(forgetting), total = lanes_fill(0.0);
    for (int64_t b = 0; b < blocks; b++) folded[b] = lanes_fill(0.0);
#pragma GCC unroll 1
    for (int64_t j = 0; j < order; j++) {
        Lanes weight = lanes_fill(weights[j] * last[j]), q = lanes_fill(last[j]);
        for (int64_t b = 0; b < blocks; b++) {
            double *target = sums + j * terms + b * LANES;
            Lanes row = lanes_load(target);
            folded[b] = lanes_add(folded[b], lanes_mul(weight, row));
            lanes_store(target, lanes_add(lanes_mul(keep, row), lanes_mul(q, lanes_load(cosines + b * LANES))));
        }
    }
    for (int64_t b = 0; b < blocks; b++) {
        Lanes weight = lanes_mul(lanes_load(weights + b * LANES), lanes_load(cosines + b * LANES));
        total = lanes_add(total, lanes_mul(weight, folded[b]));
    }
    return (1.0 + lanes_sum(total)) / (1.0 + folded[0].part[0][0]);
}

/* ------------------------------------------------------------------ many orders and forgettings: a bank */

enum { KERNEL_ORDERS = 6, KERNEL_TERMS = 64, KERNELS = KERNEL_ORDERS * LANES };
static const int KERNEL_ORDER[KERNEL_ORDERS] = {2, 4, 8, 16, 32, 64};
static const double KERNEL_FORGETTING[LANES] = {1.0, 0.999, 0.995, 0.99, 0.97, 0.94, 0.88, 0.75};

/* Factors of the sums: w_k cos(k pi p) for the densities, and w_k sin(k pi p)/(k pi) for their integrals. */
typedef struct {
    double density[KERNEL_ORDERS][KERNEL_TERMS], integral[KERNEL_ORDERS][KERNEL_TERMS];
} KernelFactors;

/* Add rows [from, to) of the sums to the totals of the orders that have them, `first` and later; then learn. */
static inline void kernel_rows(double (*sums)[LANES], const double *cosines, const KernelFactors *by, int first,
                               int from, int to, Lanes *densities, Lanes *integrals) {
    Lanes forgetting = lanes_load(KERNEL_FORGETTING);
#pragma GCC unroll 1
    for (int k = from; k < to; k++) {
        Lanes row = lanes_load(sums[k]);
        lanes_store(sums[k], lanes_add(lanes_mul(forgetting, row), lanes_fill(cosines[k])));
        for (int o = first; o < KERNEL_ORDERS; o++) {
            densities[o] = lanes_add(densities[o], lanes_mul(row, lanes_fill(by->density[o][k])));
            integrals[o] = lanes_add(integrals[o], lanes_mul(row, lanes_fill(by->integral[o][k])));
        }
    }
}

/* jackson_kernel_step and jackson_kernel_integral for each order and forgetting: 48 densities and integrals.
 * `waves` are sin(k pi p)/(k pi).
 */
static inline void kernel_bank_step(double (*sums)[LANES], const double (*weights)[KERNEL_TERMS], const double *cosines,
                                    const double *waves, double p, double *densities, double *integrals) {
    KernelFactors by;
    Lanes one = lanes_fill(1.0), zero = lanes_fill(0.0), inverse = lanes_div(one, lanes_add(one, lanes_load(sums[0])));
    Lanes density[KERNEL_ORDERS] = {one, one, one, one, one, one},
          integral[KERNEL_ORDERS] = {zero, zero, zero, zero, zero, zero};
    for (int o = 0; o < KERNEL_ORDERS; o++)
        for (int k = 0; k < KERNEL_ORDER[o]; k += LANES) {
            Lanes weight = lanes_load(weights[o] + k);
            lanes_store(by.density[o] + k, lanes_mul(weight, lanes_load(cosines + k)));
            lanes_store(by.integral[o] + k, lanes_mul(weight, lanes_load(waves + k)));
        }
    kernel_rows(sums, cosines, &by, 5, 32, 64, density, integral);
    kernel_rows(sums, cosines, &by, 4, 16, 32, density, integral);
    kernel_rows(sums, cosines, &by, 3, 8, 16, density, integral);
    kernel_rows(sums, cosines, &by, 2, 4, 8, density, integral);
    kernel_rows(sums, cosines, &by, 1, 2, 4, density, integral);
    kernel_rows(sums, cosines, &by, 0, 0, 2, density, integral);
    Lanes side = lanes_fill(p > 0.5 ? pit_rest(p) : p), sign = lanes_fill(p > 0.5 ? -1.0 : 1.0);
    for (int o = 0; o < KERNEL_ORDERS; o++) {
        lanes_store(densities + LANES * o, lanes_mul(density[o], inverse));
        lanes_store(integrals + LANES * o, lanes_add(side, lanes_mul(lanes_mul(integral[o], inverse), sign)));
    }
}

/* ------------------------------------------------------------------ entries */

/* jackson_weights(order, weights) */
static const char *jackson_weights(const Arg *in, Arg *out) {
    (void)out;
    REQUIRE(1 <= in[0].integer && in[0].integer <= JACKSON_LARGEST, "order must be from 1 to 1024");
    REQUIRE(in[1].size == jackson_padded(in[0].integer), "weights must have the length of the order, padded to 8");
    jackson_weights_of(in[0].integer, float64s(&in[1]), in[1].size);
    return NULL;
}

/* kernel(sums, weights, forgetting, p, gains) */
static const char *kernel(const Arg *in, Arg *out) {
    (void)out;
    int64_t terms = in[0].size;
    REQUIRE(LANES <= terms && terms <= JACKSON_LARGEST && terms % LANES == 0, "sums must have 8 to 1024 items");
    REQUIRE(in[1].size == terms, "weights must be as long as sums");
    REQUIRE(in[3].size == in[4].size, "gains must be as long as p");
    for (int64_t i = 0; i < in[3].size; i++)
        float64s(&in[4])[i] =
            ex_log(jackson_kernel_step(float64s(&in[0]), float64s(&in[1]), in[2].real, terms, float64s(&in[3])[i]));
    return NULL;
}

/* kernel_tails(sums, weights, p): the integrals from 0 to p and from p to 1 */
static const char *kernel_tails(const Arg *in, Arg *out) {
    int64_t terms = in[0].size;
    REQUIRE(LANES <= terms && terms <= JACKSON_LARGEST && terms % LANES == 0, "sums must have 8 to 1024 items");
    REQUIRE(in[1].size == terms, "weights must be as long as sums");
    double p = in[2].real, integral = jackson_kernel_integral(float64s(&in[0]), float64s(&in[1]), terms, p);
    out[0].real = pit_value(integral, p > 0.5), out[1].real = pit_value(integral, !(p > 0.5));
    return NULL;
}

/* markov(last, sums, weights, forgetting, p, gains) */
static const char *markov(const Arg *in, Arg *out) {
    (void)out;
    int64_t order = in[1].shape[0], terms = in[0].size;
    REQUIRE(1 <= order && order <= JACKSON_LARGEST_MARKOV && terms == jackson_padded(order),
            "last must have the length of the order, 1 to 256, padded to 8");
    REQUIRE(in[1].ndim == 2 && in[1].shape[1] == terms && in[2].size == terms, "sums and weights must fit last");
    REQUIRE(in[4].size == in[5].size, "gains must be as long as p");
    for (int64_t i = 0; i < in[4].size; i++) {
        double p = float64s(&in[4])[i], cosines[JACKSON_LARGEST_MARKOV];
        jackson_cosines(ex_cospi(p), ex_sinpi(p), terms, cosines);
        float64s(&in[5])[i] = ex_log(
            jackson_markov_step(float64s(&in[0]), float64s(&in[1]), float64s(&in[2]), in[3].real, order, cosines));
        memcpy(in[0].data, cosines, (size_t)terms * sizeof(double));
    }
    return NULL;
}

#define JACKSON_KERNELS \
    ENTRY(jackson_weights, "nD"), ENTRY(kernel, "Ddfpo"), ENTRY(kernel_tails, "ddf>ff"), ENTRY(markov, "DDdfpo"),
#define JACKSON_CONSTANTS

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

/* cos(k pi p) for k = 0, 1, ... up to a multiple of 8, from cos(pi p) and sin(pi p): eight angles by the addition
 * theorems, then all eight rotated by 8 pi p again and again.
 */
static inline void jackson_cosines(double cosine, double sine, int64_t terms, double *out) {
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
        lanes_store(out + k, all_c);
        Lanes next = lanes_sub(lanes_mul(all_c, turn_c), lanes_mul(all_s, turn_s));
        all_s = lanes_add(lanes_mul(all_s, turn_c), lanes_mul(all_c, turn_s));
        all_c = next;
    }
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

/* (1 + sum_t lam^(n-t) K_J(q, p_{t-1}) K_J(p, p_t)) / (1 + sum_t lam^(n-t) K_J(q, p_{t-1})), q the previous p; then
 * learn p. sums[j, k] = sum_t lam^(n-t) cos(j pi p_{t-1}) cos(k pi p_t); last holds the cosines of q, zeros at first.
 */
static double jackson_markov_step(double *last, double *sums, const double *weights, double forgetting, int64_t order,
                                  double p) {
    double cosines[JACKSON_LARGEST_MARKOV], folded[JACKSON_LARGEST_MARKOV] = {0.0};
    int64_t terms = jackson_padded(order);
    jackson_cosines(ex_cospi(p), ex_sinpi(p), terms, cosines);
    Lanes total = lanes_fill(0.0), keep = lanes_fill(forgetting);
    for (int64_t j = 0; j < order; j++) {
        Lanes weight = lanes_fill(weights[j] * last[j]), q = lanes_fill(last[j]);
        for (int64_t k = 0; k < terms; k += LANES) {
            double *target = sums + j * terms + k;
            Lanes row = lanes_load(target);
            lanes_store(folded + k, lanes_add(lanes_load(folded + k), lanes_mul(weight, row)));
            lanes_store(target, lanes_add(lanes_mul(keep, row), lanes_mul(q, lanes_load(cosines + k))));
        }
    }
    for (int64_t k = 0; k < terms; k += LANES) {
        Lanes weight = lanes_mul(lanes_load(weights + k), lanes_load(cosines + k));
        total = lanes_add(total, lanes_mul(weight, lanes_load(folded + k)));
    }
    memcpy(last, cosines, (size_t)terms * sizeof(double));
    return (1.0 + lanes_sum(total)) / (1.0 + folded[0]);
}

/* ------------------------------------------------------------------ many orders and forgettings: a bank */

enum { KERNEL_ORDERS = 9, KERNEL_TERMS = 64, KERNEL_FORGETTINGS = 6 };
static const int KERNEL_ORDER[KERNEL_ORDERS] = {2, 3, 4, 6, 8, 12, 16, 32, 64};
static const double KERNEL_FORGETTING[LANES] = {1.0, 0.999, 0.99, 0.98, 0.95, 0.9, 0.0, 0.0}; /* two lanes are unused */

/* A row of the sums, one for each forgetting, times its cosine; then learn the cosine. */
static inline Lanes kernel_product(double *row, Lanes forgetting, double cosine) {
    Lanes sums = lanes_load(row), c = lanes_fill(cosine);
    lanes_store(row, lanes_add(lanes_mul(forgetting, sums), c));
    return lanes_mul(sums, c);
}

static inline Lanes kernel_add(Lanes total, double weight, Lanes product) {
    return lanes_add(total, lanes_mul(lanes_fill(weight), product));
}

/* jackson_kernel_step for each order and forgetting: 54 densities, and the 2 unused lanes. The first 16 terms serve
 * all orders, the next 16 the last two, and the others the last only.
 */
static inline void kernel_bank_step(double (*sums)[LANES], const double (*weights)[KERNEL_TERMS], const double *cosines,
                                    double *out) {
    Lanes one = lanes_fill(1.0), forgetting = lanes_load(KERNEL_FORGETTING), zero = lanes_fill(0.0), products[16];
    Lanes inverse = lanes_div(one, lanes_add(one, lanes_load(sums[0]))), next = zero, last = zero, both = zero;
    for (int k = 0; k < 16; k++) products[k] = kernel_product(sums[k], forgetting, cosines[k]);
    for (int k = 16; k < 32; k++) {
        Lanes product = kernel_product(sums[k], forgetting, cosines[k]);
        next = kernel_add(next, weights[7][k], product);
        last = kernel_add(last, weights[8][k], product);
    }
    for (int k = 32; k < 64; k++)
        both = kernel_add(both, weights[8][k], kernel_product(sums[k], forgetting, cosines[k]));
    for (int o = 0; o < KERNEL_ORDERS; o++) {
        Lanes total = one;
        for (int k = 0; k < smaller(KERNEL_ORDER[o], 16); k++) total = kernel_add(total, weights[o][k], products[k]);
        if (o == 7) total = lanes_add(total, next);
        if (o == 8) total = lanes_add(total, lanes_add(last, both));
        lanes_store(out + KERNEL_FORGETTINGS * o, lanes_mul(total, inverse)); /* over unused lanes of the one before */
    }
}

enum { MARKOV_ORDERS = 5, MARKOV_TERMS = 16, MARKOV_FORGETTINGS = 2 };
static const int MARKOV_ORDER[MARKOV_ORDERS] = {16, 8, 4, 3, 2};
static const double MARKOV_FORGETTING[MARKOV_FORGETTINGS] = {1.0, 0.99};

/* Eight columns of the rows [from, to) of the sums, multiplied by the weights of the first `width` orders (those that
 * have these rows) and added up; then learn the cosines.
 */
static inline void markov_rows(double (*sums)[MARKOV_TERMS], int column, const double *last,
                               const double (*weights)[MARKOV_TERMS], Lanes forgetting, Lanes cosines, int from, int to,
                               int width, Lanes *folded) {
#pragma GCC unroll 1
    for (int j = from; j < to; j++) {
        Lanes row = lanes_load(sums[j] + column), q = lanes_fill(last[j]);
        lanes_store(sums[j] + column, lanes_add(lanes_mul(forgetting, row), lanes_mul(q, cosines)));
        for (int o = 0; o < width; o++)
            folded[o] = lanes_add(folded[o], lanes_mul(lanes_mul(lanes_fill(weights[o][j]), q), row));
    }
}

/* jackson_markov_step for each forgetting and order: 10 densities. Orders after the first have at most eight terms. */
static inline void markov_bank_step(double *last, double (*sums)[MARKOV_TERMS][MARKOV_TERMS],
                                    const double (*weights)[MARKOV_TERMS], const double *cosines, double *out) {
    double above[16], below[16];
    Lanes low = lanes_load(cosines), high = lanes_load(cosines + LANES), zero = lanes_fill(0.0);
    for (int f = 0; f < MARKOV_FORGETTINGS; f++) {
        Lanes forgetting = lanes_fill(MARKOV_FORGETTING[f]), folded[5] = {zero, zero, zero, zero, zero}, more = zero;
        markov_rows(sums[f], LANES, last, weights, forgetting, high, 0, 16, 1, &more);
        markov_rows(sums[f], 0, last, weights, forgetting, low, 0, 2, 5, folded);
        markov_rows(sums[f], 0, last, weights, forgetting, low, 2, 3, 4, folded);
        markov_rows(sums[f], 0, last, weights, forgetting, low, 3, 4, 3, folded);
        markov_rows(sums[f], 0, last, weights, forgetting, low, 4, 8, 2, folded);
        markov_rows(sums[f], 0, last, weights, forgetting, low, 8, 16, 1, folded);
        for (int o = 0; o < MARKOV_ORDERS; o++) {
            Lanes sum = lanes_mul(lanes_mul(lanes_load(weights[o]), low), folded[o]);
            if (o == 0) sum = lanes_add(sum, lanes_mul(lanes_mul(lanes_load(weights[0] + LANES), high), more));
            above[f * MARKOV_ORDERS + o] = 1.0 + lanes_sum(sum);
            below[f * MARKOV_ORDERS + o] = 1.0 + folded[o].part[0][0];
        }
    }
    for (int k = 0; k < MARKOV_FORGETTINGS * MARKOV_ORDERS; k++) out[k] = above[k] / below[k];
    lanes_store(last, low);
    lanes_store(last + LANES, high);
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
        float64s(&in[4])[i] = ex_log(
            jackson_kernel_step(float64s(&in[0]), float64s(&in[1]), in[2].real, terms, float64s(&in[3])[i]));
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
    for (int64_t i = 0; i < in[4].size; i++)
        float64s(&in[5])[i] = ex_log(jackson_markov_step(float64s(&in[0]), float64s(&in[1]), float64s(&in[2]),
                                                         in[3].real, order, float64s(&in[4])[i]));
    return NULL;
}

#define JACKSON_KERNELS ENTRY(jackson_weights, "nD"), ENTRY(kernel, "Ddfpo"), ENTRY(markov, "DDdfpo"),
#define JACKSON_CONSTANTS

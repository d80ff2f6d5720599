/* Density estimates with the Jackson kernel: finite cosine sums that are nonnegative and integrate to one.
 *
 *     K_J(x, y) = 1 + sum_{0<k<K} w_k cos(k pi x) cos(k pi y)
 *
 * Many orders and forgettings cost little more than one: they share the cosines, and the forgettings stand side by side.
 */

enum { JACKSON_TERMS = 1024 }; /* the largest order */

/* cos(k pi p) for k = 0 .. terms - 1, by rotation. */
static void jackson_cosines(double p, int64_t terms, double *out) {
    double turn_c = ex_cospi(p), turn_s = ex_sinpi(p), c = 1.0, s = 0.0;
    for (int64_t k = 0; k < terms; k++) {
        out[k] = c;
        double next = c * turn_c - s * turn_s;
        s = s * turn_c + c * turn_s;
        c = next;
    }
}

typedef struct {
    const double *weights; /* orders x terms */
    const int64_t *orders;
    const double *forgetting;
    int64_t terms, width, lanes; /* width: how many orders; lanes: how many forgettings */
} Jackson;

/* (1 + sum_i lam^(n-i) K_J(p, p_i)) / (1 + sum_i lam^(n-i)) for each order and forgetting.
 *
 * sums[k, l] = sum_i lam_l^(n-i) cos(k pi p_i); out: steps x (orders x forgettings), rows `stride` apart.
 */
static const char *jackson_kernel(double *sums, Jackson of, const double *p, int64_t n, double *out, int64_t stride) {
    double *room = malloc((size_t)(of.terms * (of.lanes + 1) + 2 * of.lanes) * sizeof(double));
    if (!room) return OUT_OF_MEMORY;
    double *cosines = room, *products = cosines + of.terms, *totals = products + of.terms * of.lanes;
    double *mass = totals + of.lanes;
    for (int64_t i = 0; i < n; i++) {
        jackson_cosines(p[i], of.terms, cosines);
        for (int64_t m = 0; m < of.lanes; m++) mass[m] = sums[m];
        for (int64_t k = 0; k < of.terms; k++) {
            double *row = sums + k * of.lanes, *product = products + k * of.lanes, c = cosines[k];
            for (int64_t m = 0; m < of.lanes; m++) {
                product[m] = row[m] * c;
                row[m] = of.forgetting[m] * row[m] + c;
            }
        }
        for (int64_t o = 0; o < of.width; o++) {
            for (int64_t m = 0; m < of.lanes; m++) totals[m] = 1.0;
            for (int64_t k = 0; k < of.orders[o]; k++)
                for (int64_t m = 0; m < of.lanes; m++)
                    totals[m] += of.weights[o * of.terms + k] * products[k * of.lanes + m];
            for (int64_t m = 0; m < of.lanes; m++)
                out[i * stride + o * of.lanes + m] = totals[m] / (1.0 + mass[m]);
        }
    }
    free(room);
    return NULL;
}

/* (1 + sum K_J(q, p_{t-1}) K_J(p, p_t)) / (1 + sum K_J(q, p_{t-1})), q the p before: each forgetting and order.
 *
 * sums[l, j, k] = sum_t lam_l^(n-t) cos(j pi p_{t-1}) cos(k pi p_t); last holds q's cosines, zeros at first.
 */
static const char *jackson_markov(double *last, double *sums, Jackson of, const double *p, int64_t n, double *out,
                                  int64_t stride) {
    double *room = malloc((size_t)(2 * of.terms) * sizeof(double));
    if (!room) return OUT_OF_MEMORY;
    double *cosines = room, *folded = room + of.terms;
    int64_t size = of.terms;
    for (int64_t i = 0; i < n; i++) {
        jackson_cosines(p[i], size, cosines);
        for (int64_t f = 0; f < of.lanes; f++) {
            double *table = sums + f * size * size;
            for (int64_t o = 0; o < of.width; o++) {
                int64_t K = of.orders[o];
                const double *w = of.weights + o * size;
                for (int64_t k = 0; k < K; k++) folded[k] = 0.0;
                for (int64_t j = 0; j < K; j++) {
                    double u = w[j] * last[j];
                    for (int64_t k = 0; k < K; k++) folded[k] += u * table[j * size + k];
                }
                double total = 1.0;
                for (int64_t k = 0; k < K; k++) total += w[k] * cosines[k] * folded[k];
                out[i * stride + f * of.width + o] = total / (1.0 + folded[0]);
            }
            if (last[0] > 0.0)
                for (int64_t j = 0; j < size; j++)
                    for (int64_t k = 0; k < size; k++)
                        table[j * size + k] = of.forgetting[f] * table[j * size + k] + last[j] * cosines[k];
        }
        memcpy(last, cosines, (size_t)size * sizeof(double));
    }
    free(room);
    return NULL;
}

/* weights, orders, forgetting */
static const char *jackson_of(const Arg *in, Jackson *of) {
    *of = (Jackson){float64s(&in[0]), int64s(&in[1]), float64s(&in[2]), in[0].shape[1], in[1].size, in[2].size};
    REQUIRE(in[0].ndim == 2 && in[0].shape[0] == of->width, "weights must have a row for each order");
    REQUIRE(of->terms <= JACKSON_TERMS, "the orders must be at most 1024");
    for (int64_t o = 0; o < of->width; o++)
        REQUIRE(1 <= of->orders[o] && of->orders[o] <= of->terms, "an order must be from 1 to the number of weights");
    return NULL;
}

/* kernel(sums, weights, orders, forgetting, p, densities) */
static const char *kernel(const Arg *in, Arg *out) {
    (void)out;
    Jackson of;
    const char *wrong = jackson_of(in + 1, &of);
    if (wrong) return wrong;
    REQUIRE(in[0].size == of.terms * of.lanes, "sums must have a row for each term and a column for each forgetting");
    REQUIRE(in[5].size == in[4].size * of.width * of.lanes, "densities must have a row for each p");
    return jackson_kernel(float64s(&in[0]), of, float64s(&in[4]), in[4].size, float64s(&in[5]), of.width * of.lanes);
}

/* markov(last, sums, weights, orders, forgetting, p, densities) */
static const char *markov(const Arg *in, Arg *out) {
    (void)out;
    Jackson of;
    const char *wrong = jackson_of(in + 2, &of);
    if (wrong) return wrong;
    REQUIRE(in[0].size == of.terms, "last must have an item for each term");
    REQUIRE(in[1].size == of.lanes * of.terms * of.terms, "sums must have a square matrix for each forgetting");
    REQUIRE(in[6].size == in[5].size * of.width * of.lanes, "densities must have a row for each p");
    return jackson_markov(float64s(&in[0]), float64s(&in[1]), of, float64s(&in[5]), in[5].size, float64s(&in[6]),
                          of.width * of.lanes);
}

#define JACKSON_KERNELS ENTRY(kernel, "Ddqdpo"), ENTRY(markov, "DDdqdpo"),
#define JACKSON_CONSTANTS

/* Capital shared among several bets on one sequence of p-values. */

/* Bayes mixture: each share grows by its own bet,
 *
 *     f = sum_k w_k f_k ,   w_k <- w_k f_k / f ,
 *
 * on log shares and log densities (gains). Returns log f; minus infinity if every bet with a share is bankrupt.
 */
static inline double blend_step(double *log_shares, const double *gains, int64_t bets) {
    double top = -INFINITY, total = 0.0;
    for (int64_t k = 0; k < bets; k++) {
        double value = log_shares[k] + gains[k];
        top = value > top ? value : top;
    }
    if (top == -INFINITY) {
        for (int64_t k = 0; k < bets; k++) log_shares[k] = -INFINITY;
        return -INFINITY;
    }
    for (int64_t k = 0; k < bets; k++) total += ex_exp(log_shares[k] + gains[k] - top);
    double gain = top + ex_log(total);
    for (int64_t k = 0; k < bets; k++) log_shares[k] += gains[k] - gain;
    return gain;
}

/* Memory share, as in share.h, but on log densities (gains) of any bets, which may be bankrupt. The shares sum to
 * one. If all capital is where the density is zero, they become the prior.
 */
typedef struct {
    double *shares, *targets, *n;
    const double *prior;
    int64_t bets;
    Share with;
} MemoryShare;

/* The share of bet k after the move. */
static inline double memory_share_moved(const MemoryShare *of, int64_t k) {
    return (1.0 - of->with.share) * of->shares[k] + of->with.share * of->targets[k];
}

static double memory_share_step(const MemoryShare *of, const double *gains) {
    double top = -INFINITY, total = 0.0;
    for (int64_t k = 0; k < of->bets; k++)
        if (gains[k] > top && memory_share_moved(of, k) > 0.0) top = gains[k];
    for (int64_t k = 0; k < of->bets; k++) {
        double moved = memory_share_moved(of, k);
        of->shares[k] = moved > 0.0 && top > -INFINITY ? moved * ex_exp(gains[k] - top) : 0.0;
        total += of->shares[k];
    }
    for (int64_t k = 0; k < of->bets; k++) of->shares[k] = total > 0.0 ? of->shares[k] / total : of->prior[k];
    *of->n += 1.0;
    share_remember(of->with, of->shares, 1.0, of->prior, *of->n, of->targets, of->bets);
    return total > 0.0 ? top + ex_log(total) : -INFINITY;
}

/* Use the gain of a step only if the log capital of the shadow account was `threshold` above its recent minimum.
 *
 * state = (steps, shadow log capital, first, last). The ring `window` has two rows of `size`: the steps and the
 * values that may yet become the minimum of the last `size` values. Values increase from first to last.
 */
static void cautious_path(double *state, double *window, int64_t size, double threshold, const double *gains, int64_t n,
                          double *out) {
    double steps = state[0], shadow = state[1], *when = window, *value = window + size;
    int64_t first = (int64_t)state[2], last = (int64_t)state[3];
    for (int64_t i = 0; i < n; i++) {
        double gain = gains[i];
        out[i] = shadow - value[first % size] >= threshold ? gain : 0.0;
        steps += 1.0;
        shadow += gain;
        while (first < last && when[first % size] < steps - (double)(size - 1)) first++;
        while (first < last && value[(last - 1) % size] >= shadow) last--;
        when[last % size] = steps, value[last % size] = shadow;
        last++;
    }
    state[0] = steps, state[1] = shadow, state[2] = (double)first, state[3] = (double)last;
}

/* blend(log_shares, gains, out); gains are steps x bets */
static const char *blend(const Arg *in, Arg *out) {
    (void)out;
    int64_t bets = in[0].size, steps = in[2].size;
    REQUIRE(bets > 0 && in[1].size == steps * bets, "gains must have a row for each step and a column for each share");
    for (int64_t i = 0; i < steps; i++)
        float64s(&in[2])[i] = blend_step(float64s(&in[0]), float64s(&in[1]) + i * bets, bets);
    return NULL;
}

/* memory_share(shares, targets, n, prior, share, memory, gains, out); gains are steps x bets */
static const char *memory_share(const Arg *in, Arg *out) {
    (void)out;
    int64_t bets = in[0].size, steps = in[7].size;
    REQUIRE(bets > 0 && in[1].size == bets && in[3].size == bets && in[2].size == 1, "shares, targets and prior must have one item for each bet");
    REQUIRE(in[6].size == steps * bets, "gains must have a row for each step and a column for each share");
    MemoryShare of = {float64s(&in[0]),        float64s(&in[1]), float64s(&in[2]), float64s(&in[3]), bets,
                      {in[4].real, in[5].real}};
    for (int64_t i = 0; i < steps; i++) float64s(&in[7])[i] = memory_share_step(&of, float64s(&in[6]) + i * bets);
    return NULL;
}

/* cautious(state, window, threshold, gains, out) */
static const char *cautious(const Arg *in, Arg *out) {
    (void)out;
    REQUIRE(in[0].size == 4, "state must hold 4 numbers");
    REQUIRE(in[1].ndim == 2 && in[1].shape[0] == 2 && in[1].shape[1] > 0, "window must have two rows");
    double first = float64s(&in[0])[2], last = float64s(&in[0])[3];
    REQUIRE(first >= 0.0 && last > first && last <= 0x1p53 && last - first <= (double)in[1].shape[1],
            "state must hold a part of the ring");
    REQUIRE(in[3].size == in[4].size, "out must be as long as gains");
    cautious_path(float64s(&in[0]), float64s(&in[1]), in[1].shape[1], in[2].real, float64s(&in[3]), in[3].size,
                  float64s(&in[4]));
    return NULL;
}

/* two_sided(p, out): 2 min(p, 1 - p) */
static const char *two_sided(const Arg *in, Arg *out) {
    (void)out;
    REQUIRE(in[0].size == in[1].size, "out must be as long as p");
    for (int64_t i = 0; i < in[0].size; i++) float64s(&in[1])[i] = pit_two_sided(float64s(&in[0])[i]);
    return NULL;
}

#define BLEND_KERNELS \
    ENTRY(two_sided, "po"), ENTRY(blend, "Ddo"), ENTRY(memory_share, "DDDdffdo"), ENTRY(cautious, "DDfpo"),
#define BLEND_CONSTANTS

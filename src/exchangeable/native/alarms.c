/* Statistics of the log martingale's increments, g_n = log S_n - log S_{n-1}.
 *
 * A state begins with the last log value. When that is infinite the stream has ended: the statistic stays as it is.
 */

/* log gamma_n = g_n + max(log gamma_{n-1}, 0), where gamma_n = max_{i<n} S_n / S_i.
 * state = (last log value, log gamma)
 */
static void cusum_path(double *state, const double *log_values, int64_t n, double *out) {
    double last = state[0], statistic = state[1];
    for (int64_t i = 0; i < n; i++) {
        if (!isinf(last)) {
            statistic = (log_values[i] - last) + (0.0 > statistic ? 0.0 : statistic);
            last = log_values[i];
        }
        out[i] = statistic;
    }
    state[0] = last, state[1] = statistic;
}

/* log psi_n = g_n + log(1 + psi_{n-1}), where psi_n = sum_{i<n} S_n / S_i.
 * state = (last log value, log psi)
 */
static void shiryaev_roberts_path(double *state, const double *log_values, int64_t n, double *out) {
    double last = state[0], statistic = state[1];
    for (int64_t i = 0; i < n; i++) {
        if (!isinf(last)) {
            double more = (0.0 > statistic ? 0.0 : statistic) + ex_log1p(ex_exp(-fabs(statistic)));
            statistic = (log_values[i] - last) + more;
            last = log_values[i];
        }
        out[i] = statistic;
    }
    state[0] = last, state[1] = statistic;
}

/* Sums of the last W of d_i = min(f_i, bound) - 1, where log f_i = g_i.
 * state = (last log value, sum, place in the ring)
 *
 * The ring holds the last W summands. The sum is recomputed once per turn of the ring, so that rounding errors do not
 * accumulate.
 */
static void difference_path(double *state, double *ring, int64_t window, double bound, const double *log_values,
                            int64_t n, double *out) {
    double last = state[0], sum = state[1], log_bound = ex_log(bound);
    int64_t place = (int64_t)state[2];
    for (int64_t i = 0; i < n; i++) {
        if (!isinf(last)) {
            double gain = log_values[i] - last;
            double summand = (gain < log_bound ? ex_exp(gain) : bound) - 1.0;
            sum += summand - ring[place];
            ring[place] = summand;
            if (++place == window) {
                place = 0;
                sum = 0.0;
                for (int64_t k = 0; k < window; k++) sum += ring[k];
            }
            last = log_values[i];
            if (isinf(last)) sum = last;
        }
        out[i] = sum;
    }
    state[0] = last, state[1] = sum, state[2] = (double)place;
}

/* cusum(state, log_values, out) */
static const char *cusum(const Arg *in, Arg *out) {
    (void)out;
    REQUIRE(in[0].size == 2, "state must hold 2 numbers");
    REQUIRE(in[1].size == in[2].size, "out must be as long as log_values");
    cusum_path(float64s(&in[0]), float64s(&in[1]), in[1].size, float64s(&in[2]));
    return NULL;
}

/* shiryaev_roberts(state, log_values, out) */
static const char *shiryaev_roberts(const Arg *in, Arg *out) {
    (void)out;
    REQUIRE(in[0].size == 2, "state must hold 2 numbers");
    REQUIRE(in[1].size == in[2].size, "out must be as long as log_values");
    shiryaev_roberts_path(float64s(&in[0]), float64s(&in[1]), in[1].size, float64s(&in[2]));
    return NULL;
}

/* difference(state, ring, bound, log_values, out) */
static const char *difference(const Arg *in, Arg *out) {
    (void)out;
    REQUIRE(in[0].size == 3, "state must hold 3 numbers");
    double place = float64s(&in[0])[2];
    REQUIRE(place >= 0.0 && place < (double)in[1].size, "state must hold a place in the ring");
    REQUIRE(in[3].size == in[4].size, "out must be as long as log_values");
    difference_path(float64s(&in[0]), float64s(&in[1]), in[1].size, in[2].real, float64s(&in[3]), in[3].size,
                    float64s(&in[4]));
    return NULL;
}

#define ALARMS_KERNELS \
    ENTRY(cusum, "Dpo"), \
    ENTRY(shiryaev_roberts, "Dpo"), \
    ENTRY(difference, "DDfpo"),
#define ALARMS_CONSTANTS

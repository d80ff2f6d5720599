/* Statistics of the log martingale's increments, g_n = log S_n - log S_{n-1}.
 *
 * The first item of a state is the last log value. If it is infinite, the capital is final and the statistic stays.
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

#define ALARMS_KERNELS \
    ENTRY(cusum, "Dpo"), \
    ENTRY(shiryaev_roberts, "Dpo"),
#define ALARMS_CONSTANTS

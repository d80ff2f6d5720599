/* Compensated running sums (Neumaier): the sum is total + carry, and its error does not grow with the steps. */

typedef struct {
    double total, carry;
} Sum;

static inline Sum sum_add(Sum sum, double term) {
    double total = sum.total + term;
    if (fabs(sum.total) >= fabs(term))
        sum.carry += (sum.total - total) + term;
    else
        sum.carry += (term - total) + sum.total;
    sum.total = total;
    return sum;
}

/* Running sums of the terms after state = (total, carry); minus infinity, once reached, stays. */
static void sum_path(double *state, const double *terms, int64_t n, double *out) {
    Sum sum = {state[0], state[1]};
    for (int64_t i = 0; i < n; i++) {
        if (sum.total == -INFINITY || terms[i] == -INFINITY)
            sum = (Sum){-INFINITY, 0.0};
        else
            sum = sum_add(sum, terms[i]);
        out[i] = sum.total + sum.carry;
    }
    state[0] = sum.total, state[1] = sum.carry;
}

/* accumulate(state, terms, out) */
static const char *accumulate(const Arg *in, Arg *out) {
    (void)out;
    REQUIRE(in[0].size == 2, "state must hold total and carry");
    REQUIRE(in[1].size == in[2].size, "out must be as long as terms");
    sum_path(float64s(&in[0]), float64s(&in[1]), in[1].size, float64s(&in[2]));
    return NULL;
}

#define SUMMATION_KERNELS ENTRY(accumulate, "Dpo"),
#define SUMMATION_CONSTANTS

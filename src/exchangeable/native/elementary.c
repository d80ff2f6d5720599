/* The elementary functions of elementary.h on arrays, or on one number: for tests, and for tables made in Python that
 * must have the same bits everywhere (the functions of NumPy and of the C library depend on the machine).
 */

#define ELEMENTARY(name) \
    static const char *elementary_##name(const Arg *in, Arg *out) { \
        (void)out; \
        REQUIRE(in[0].size == in[1].size, "out must be as long as x"); \
        const double *x = float64s(&in[0]); \
        double *to = float64s(&in[1]); \
        for (int64_t i = 0; i < in[0].size; i++) to[i] = ex_##name(x[i]); \
        return NULL; \
    }

ELEMENTARY(exp)
ELEMENTARY(log)
ELEMENTARY(log1p)
ELEMENTARY(sinpi)
ELEMENTARY(cospi)
ELEMENTARY(lgamma)
ELEMENTARY(erfc)
ELEMENTARY(erfcx)
ELEMENTARY(inverse_fifth_root)

#define ELEMENTARY_ENTRY(name) {#name, "po", elementary_##name},
#define ELEMENTARY_KERNELS \
    ELEMENTARY_ENTRY(exp) \
    ELEMENTARY_ENTRY(log) \
    ELEMENTARY_ENTRY(log1p) \
    ELEMENTARY_ENTRY(sinpi) \
    ELEMENTARY_ENTRY(cospi) \
    ELEMENTARY_ENTRY(lgamma) \
    ELEMENTARY_ENTRY(erfc) \
    ELEMENTARY_ENTRY(erfcx) \
    ELEMENTARY_ENTRY(inverse_fifth_root)
#define ELEMENTARY_CONSTANTS

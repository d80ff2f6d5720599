/* Columns that hold rows of different lengths end to end. */

static inline void keyed_copy(int64_t *to, const int64_t *from, int64_t count) {
    memcpy(to, from, sizeof *to * (size_t)count);
}

/* keyed_lift(column, start, used, places, to, out)
 *
 * Copy the rows at these places, each to its own start. Numbers are copied as bits: pass reals as a view of int64.
 */
static const char *keyed_lift(const Arg *in, Arg *out) {
    (void)out;
    const int64_t *start = int64s(&in[1]), *used = int64s(&in[2]), *places = int64s(&in[3]), *to = int64s(&in[4]);
    REQUIRE(in[1].size == in[2].size && in[3].size == in[4].size, "start and used, places and to must be equally long");
    for (int64_t t = 0; t < in[3].size; t++) {
        int64_t k = places[t];
        REQUIRE(k >= 0 && k < in[1].size, "places must be those of rows");
        REQUIRE(keyed_within(start[k], used[k], in[0].size), "rows must lie within the column");
        REQUIRE(keyed_within(to[t], used[k], in[5].size), "rows must find room in out");
        keyed_copy(int64s(&in[5]) + to[t], int64s(&in[0]) + start[k], used[k]);
    }
    return NULL;
}

/* keyed_splice(column, start, changed, rows, begin, used, out)
 *
 * Copy all rows end to end. Row k is row changed[k] of `rows`, which starts at begin[changed[k]]; if that is negative,
 * it is row k of the column.
 */
static const char *keyed_splice(const Arg *in, Arg *out) {
    (void)out;
    int64_t count = in[5].size, at = 0;
    const int64_t *start = int64s(&in[1]), *changed = int64s(&in[2]), *begin = int64s(&in[4]), *used = int64s(&in[5]);
    REQUIRE(in[1].size == count && in[2].size == count, "start, changed and used must be equally long");
    for (int64_t k = 0; k < count; k++) {
        REQUIRE(changed[k] < in[4].size, "changed must be numbers of rows");
        const Arg *source = changed[k] < 0 ? &in[0] : &in[3];
        int64_t from = changed[k] < 0 ? start[k] : begin[changed[k]];
        REQUIRE(keyed_within(from, used[k], source->size), "rows must lie within their columns");
        REQUIRE(keyed_within(at, used[k], in[6].size), "rows must find room in out");
        keyed_copy(int64s(&in[6]) + at, int64s(source) + from, used[k]);
        at += used[k];
    }
    return NULL;
}

#define KEYED_RAGGED_KERNELS ENTRY(keyed_lift, "qqqqqQ"), ENTRY(keyed_splice, "qqqqqqQ"),
#define KEYED_RAGGED_CONSTANTS

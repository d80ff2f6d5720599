/* Columns that store rows of different lengths end to end. */

static inline void keyed_copy(int64_t *to, const int64_t *from, int64_t count) {
    memcpy(to, from, sizeof *to * (size_t)count);
}

/* keyed_take_rows(column, start, used, positions, to, out)
 *
 * Copy the rows at these positions, each to its own start. Numbers are copied as bits: pass reals as a view of int64.
 */
static const char *keyed_take_rows(const Arg *in, Arg *out) {
    (void)out;
    const int64_t *start = int64s(&in[1]), *used = int64s(&in[2]), *positions = int64s(&in[3]), *to = int64s(&in[4]);
    REQUIRE(in[1].size == in[2].size && in[3].size == in[4].size,
            "start and used, positions and to must be equally long");
    for (int64_t t = 0; t < in[3].size; t++) {
        int64_t k = positions[t];
        REQUIRE(k >= 0 && k < in[1].size, "positions must be numbers of rows");
        REQUIRE(keyed_within(start[k], used[k], in[0].size), "rows must lie within the column");
        REQUIRE(keyed_within(to[t], used[k], in[5].size), "out must have room for all rows");
        keyed_copy(int64s(&in[5]) + to[t], int64s(&in[0]) + start[k], used[k]);
    }
    return NULL;
}

#define KEYED_RAGGED_KERNELS ENTRY(keyed_take_rows, "qqqqqQ"),
#define KEYED_RAGGED_CONSTANTS

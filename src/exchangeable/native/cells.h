/* Cells of [0, 1] that get shorter towards both ends: 2^bits per octave, down to 2^-octaves.
 *
 * The lower half has ((octaves - 1) << bits) + 1 cells, counted from 0 outwards, and cell 0 is below 2^-octaves. The
 * upper half is its mirror image.
 */
#ifndef EXCHANGEABLE_CELLS_H
#define EXCHANGEABLE_CELLS_H

#include "elementary.h"

typedef struct {
    int octaves, bits;
} Cells;

#define CELLS_SIDE(octaves, bits) ((((octaves) - 1) << (bits)) + 1)

static inline int64_t cells_side(Cells cells) { return CELLS_SIDE(cells.octaves, cells.bits); }

/* The cell of x in (0, 1/2]: the exponent and the first bits of the mantissa. */
static inline int64_t cells_lower(Cells cells, double x) {
    uint64_t head = ex_bits(x) >> (52 - cells.bits);
    int64_t cell = (int64_t)head - ((INT64_C(1023) - cells.octaves) << cells.bits) + 1, last = cells_side(cells) - 1;
    return cell < 0 ? 0 : cell < last ? cell : last;
}

static inline int64_t cells_at(Cells cells, double p) {
    return p < 0.5 ? cells_lower(cells, p) : 2 * cells_side(cells) - 1 - cells_lower(cells, 1.0 - p);
}

/* The upper edge of a cell of the lower half. */
static inline double cells_edge(Cells cells, int64_t cell) {
    int64_t each = INT64_C(1) << cells.bits;
    return ldexp((double)(each + cell % each), -cells.octaves - cells.bits + (int)(cell / each));
}

static inline double cells_start(Cells cells, int64_t cell) { return cell ? cells_edge(cells, cell - 1) : 0.0; }

#endif

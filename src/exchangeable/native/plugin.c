/* The paper's plug-in bet: a Gaussian kernel estimate of the past p-values, reflected at 0 and 1.
 *
 * The estimator is that of the extended sample {-p_i, p_i, 2 - p_i} with Silverman's bandwidth h (R's bw.nrd0), cut to
 * [0, 1] and normalised to integral one. It takes O(1/h) time a step and constant memory:
 *
 * - With infinitely many reflections, the estimator is a cosine series, for any bandwidth,
 *
 *       1 + (2/n) sum_{k>=1} exp(-(k pi h)^2 / 2) C_k cos(k pi p),    C_k = sum_i cos(k pi p_i) .
 *
 * - The series has further copies of each p_i (2 + p_i, -2 + p_i and so on, all at least 1 away from any p), and the
 *   three copies of the estimator lose mass outside [0, 1]. Both corrections are sums of smooth functions of the p_i, and
 *   come from Chebyshev interpolation in p_i, exact up to rounding. Below h = PLUGIN_WIDE they are smaller than 1e-12
 *   and are left out.
 * - Where the density is so small that the series cancels, or h so small that the series is too long (n > 1e10), the
 *   sum runs over 1,024 cells: Hermite expansions about their centres, relative to the nearest one, so that tiny
 *   densities keep their relative accuracy and never underflow. Where the expansions would need more terms (far from
 *   all p-values, and n > 1e7), it runs over the intervals of the grid below, each given by its count, mean and
 *   variance.
 *
 * Silverman's rule reads the quartiles when p-values are strongly U-shaped. They come from a grid of 86,018 intervals of
 * width 2^-16, which are narrower near 0 and 1 (256 for each halving of the distance, down to 2^-50). Each holds the
 * number of its p-values, their mean and their variance; an order statistic is exact where an interval holds one or two
 * p-values, or equal ones, and otherwise computed as if they were evenly spaced.
 *
 * References: Fedorova et al. (2012), sections 3.3 and 4; Greengard and Strain (1991) for the expansion.
 */

enum {
    PLUGIN_EARLY = 4300, /* after this many steps h < PLUGIN_WIDE: sd <= sqrt(8.25)/3, so h <= 0.8617 (3 n)^(-1/5) */
    PLUGIN_NODES = 20,   /* of the Chebyshev interpolation */
    PLUGIN_WAVES = 512,  /* terms of the longest series that is used */
    PLUGIN_LANES = 16,   /* terms that are computed side by side */
    PLUGIN_CELLS = 1024,
    PLUGIN_MOMENTS = 16,
    PLUGIN_FINE = 1 << 16, /* intervals of the grid in [0, 1], away from its ends */
    PLUGIN_OCTAVES = 44,   /* nearer to 0 or 1 than PLUGIN_EDGE: the number of halvings of the distance, */
    PLUGIN_PARTS = 256,    /* and of intervals in each */
    PLUGIN_TAIL = 1 + PLUGIN_OCTAVES * PLUGIN_PARTS,
    PLUGIN_GRID_SIZE = 2 * PLUGIN_TAIL + PLUGIN_FINE - 2 * PLUGIN_FINE / 64,
    PLUGIN_STRIDE = 256, /* intervals that are counted together, to skip over empty ones */
    PLUGIN_STRIDES = 1 + PLUGIN_GRID_SIZE / PLUGIN_STRIDE,
    PLUGIN_BLOCK = 1024, /* steps after which the recent cosine sums are added to the old ones */
};

/* An interval of the grid: how many p-values, the first of them, sums of the distances from it and of their squares. */
enum { PLUGIN_COUNT, PLUGIN_ANCHOR, PLUGIN_OFFSETS, PLUGIN_OFFSETS2, PLUGIN_INTERVAL };

/* The head: how many p-values, their sum and its carry, the sum of their squares and its carry; the bandwidth that
 * follows from these, the mass that remains in [0, 1], and the number of cosine sums that are maintained. */
enum {
    PLUGIN_N,
    PLUGIN_SUM,
    PLUGIN_SUM_CARRY,
    PLUGIN_SQUARES,
    PLUGIN_SQUARES_CARRY,
    PLUGIN_WIDTH,
    PLUGIN_MASS,
    PLUGIN_ACTIVE,
    PLUGIN_HEAD,
};

static const double PLUGIN_EDGE = 0x1p-6;
static const double PLUGIN_WIDE = 0.13;   /* bandwidth above which the further copies are subtracted */
static const double PLUGIN_REACH = 8.584; /* sqrt(2 ln 1e16): Gaussians beyond it are below 1e-16 */
static const double PLUGIN_FAR = -80.0;   /* exponents below it are less than 1e-30 of the nearest */
static const double PLUGIN_FAINT = 0.01;  /* below this density the series would cancel */
static const double PLUGIN_ROOT2 = 1.4142135623730951, PLUGIN_ROOT2PI = 2.5066282746310002;

/* Chebyshev nodes (1 - cos a_j)/2 and their barycentric weights (-1)^j sin a_j, where a_j = (2 j + 1) pi / 40. */
static const double PLUGIN_POINTS[PLUGIN_NODES] = {
    0.001541333133436018, 0.013815039801161721, 0.03806023374435663, 0.07367991782295391, 0.11979701719998453,
    0.17527597583490812, 0.23875071764202555, 0.3086582838174551, 0.38327731807204724, 0.4607704521360775,
    0.5392295478639224, 0.6167226819279527, 0.6913417161825448, 0.7612492823579744, 0.8247240241650917,
    0.8802029828000155, 0.9263200821770461, 0.9619397662556434, 0.9861849601988383, 0.998458666866564,
};
static const double PLUGIN_BARYCENTRIC[PLUGIN_NODES] = {
    0.07845909572784494, -0.2334453638559054, 0.3826834323650898, -0.5224985647159488, 0.6494480483301837,
    -0.7604059656000308, 0.8526401643540922, -0.9238795325112867, 0.9723699203976766, -0.996917333733128,
    0.996917333733128, -0.9723699203976767, 0.9238795325112867, -0.8526401643540923, 0.760405965600031,
    -0.6494480483301838, 0.5224985647159489, -0.3826834323650899, 0.23344536385590553, -0.07845909572784507,
};

/* The state, in the order of the arguments. */
typedef struct {
    double *head;
    double *nodes;       /* sums of the Lagrange polynomials at the p-values */
    double *old;         /* cosine sums C_k, k = 1, 2, ...: up to the last block */
    double *recent;      /* and after it */
    double *cells;       /* of each cell: sums of the powers of the distances from its centre */
    double *cursors;     /* lower and upper quartile: index in the grid, and how many p-values lie below it */
    double *grid;        /* PLUGIN_GRID_SIZE intervals */
    double *blocks;      /* how many p-values lie in PLUGIN_STRIDE intervals */
} Plugin;

/* ------------------------------------------------------------------ the grid, and the bandwidth */

/* The interval of a p-value at this distance (below PLUGIN_EDGE) from 0: 0 for the nearest, increasing. */
static int64_t plugin_near(double distance) {
    int exponent;
    double mantissa = frexp(distance, &exponent);
    int octave = -5 - exponent; /* 1 for distances in [PLUGIN_EDGE/2, PLUGIN_EDGE) */
    if (distance == 0.0 || octave > PLUGIN_OCTAVES) return 0;
    return 1 + (PLUGIN_OCTAVES - octave) * PLUGIN_PARTS + (int)((2.0 * mantissa - 1.0) * PLUGIN_PARTS);
}

/* The interval of the grid that holds p. */
static int64_t plugin_index(double p) {
    if (p < PLUGIN_EDGE) return plugin_near(p);
    if (1.0 - p < PLUGIN_EDGE) return PLUGIN_GRID_SIZE - 1 - plugin_near(1.0 - p);
    return smaller(PLUGIN_TAIL + (int64_t)((p - PLUGIN_EDGE) * PLUGIN_FINE), PLUGIN_GRID_SIZE - 1 - PLUGIN_TAIL);
}

static inline double *plugin_interval(const Plugin *s, int64_t index) { return s->grid + PLUGIN_INTERVAL * index; }

/* Move a cursor to the interval that holds the k-th smallest p-value, k from 0. It never leaves the grid. */
static void plugin_seek(const Plugin *s, double *cursor, double k) {
    int64_t index = (int64_t)cursor[0];
    double below = cursor[1];
    while (below > k && index > 0) {
        if (index % PLUGIN_STRIDE == 0 && below - s->blocks[index / PLUGIN_STRIDE - 1] > k) {
            below -= s->blocks[index / PLUGIN_STRIDE - 1];
            index -= PLUGIN_STRIDE;
        } else {
            index -= 1;
            below -= plugin_interval(s, index)[PLUGIN_COUNT];
        }
    }
    while (index < PLUGIN_GRID_SIZE - 1 && below + plugin_interval(s, index)[PLUGIN_COUNT] <= k) {
        if (index % PLUGIN_STRIDE == 0 && index + PLUGIN_STRIDE < PLUGIN_GRID_SIZE &&
            below + s->blocks[index / PLUGIN_STRIDE] <= k) {
            below += s->blocks[index / PLUGIN_STRIDE];
            index += PLUGIN_STRIDE;
        } else {
            below += plugin_interval(s, index)[PLUGIN_COUNT];
            index += 1;
        }
    }
    cursor[0] = (double)index, cursor[1] = below;
}

typedef struct {
    double mean, variance;
} PluginSpread;

/* Mean and variance of the p-values in an interval. */
static inline PluginSpread plugin_spread(const double *interval) {
    double offset = interval[PLUGIN_OFFSETS] / interval[PLUGIN_COUNT];
    double variance = interval[PLUGIN_OFFSETS2] / interval[PLUGIN_COUNT] - offset * offset;
    return (PluginSpread){interval[PLUGIN_ANCHOR] + offset, variance > 0.0 ? variance : 0.0};
}

/* The k-th smallest p-value, in the cursor's interval: as if its p-values were evenly spaced. */
static double plugin_in_interval(const Plugin *s, const double *cursor, double k) {
    const double *interval = plugin_interval(s, (int64_t)cursor[0]);
    PluginSpread spread = plugin_spread(interval);
    double count = interval[PLUGIN_COUNT];
    if (count == 1.0) return spread.mean;
    return spread.mean +
           (k - cursor[1] - 0.5 * (count - 1.0)) * sqrt(12.0 * spread.variance / (count * count - 1.0));
}

/* The order statistic at a fractional index from 0 (R's quantile, type 7). */
static double plugin_order_statistic(const Plugin *s, double *cursor, double index) {
    double k = floor(index), part = index - k, high = 0.0;
    if (part > 0.0) {
        plugin_seek(s, cursor, k + 1.0);
        high = plugin_in_interval(s, cursor, k + 1.0);
    }
    plugin_seek(s, cursor, k);
    return (1.0 - part) * plugin_in_interval(s, cursor, k) + part * high;
}

/* Interquartile range of the extended sample, or a lower bound of it that shows that the standard deviation is less. */
static double plugin_span(const Plugin *s, double n, double enough) {
    double *first = s->cursors, *second = s->cursors + 2;
    if (n == 1.0) return 1.0;
    if (n == 2.0) /* the quartiles fall between the copies: 1.5 - max/2 and -min/2 */
        return 1.5 - 0.5 * (plugin_order_statistic(s, second, 1.0) - plugin_order_statistic(s, first, 0.0));
    double upper = (3.0 * n - 1.0) / 4.0, lower = (n - 3.0) / 4.0;
    plugin_seek(s, second, ceil(upper));
    plugin_seek(s, first, floor(lower));
    double anchors = plugin_interval(s, (int64_t)second[0])[PLUGIN_ANCHOR] -
                     plugin_interval(s, (int64_t)first[0])[PLUGIN_ANCHOR];
    double bound = 2.0 - anchors - 2.0 / PLUGIN_FINE; /* each at most the width of an interval away */
    if (bound >= enough) return bound;
    return 2.0 - plugin_order_statistic(s, second, upper) + plugin_order_statistic(s, first, lower);
}

/* bw.nrd0 of the extended sample: 0.9 min(sd, IQR/1.34) (3 n)^(-1/5). */
static double plugin_bandwidth(const Plugin *s) {
    const double *head = s->head;
    double n = head[PLUGIN_N], sum = head[PLUGIN_SUM] + head[PLUGIN_SUM_CARRY];
    double total = 2.0 * n - sum;
    double squares = 3.0 * (head[PLUGIN_SQUARES] + head[PLUGIN_SQUARES_CARRY]) + 4.0 * n - 4.0 * sum;
    double deviation = sqrt((squares - total * total / (3.0 * n)) / (3.0 * n - 1.0));
    double range = plugin_span(s, n, 1.35 * deviation) / 1.34;
    return 0.9 * (range < deviation ? range : deviation) * ex_inverse_fifth_root(3.0 * n);
}

/* ------------------------------------------------------------------ large bandwidths: mass, and further copies */

/* Gaussian upper tail, left out where it is below the last bit of one. */
static inline double plugin_tail(double z) { return z < PLUGIN_REACH ? 0.5 * ex_erfc(z / PLUGIN_ROOT2) : 0.0; }

/* The mean mass of the three copies that lies in [0, 1]: 1 - mean[Q((1 + p_i)/h) + Q((2 - p_i)/h)]. */
static double plugin_kept(const Plugin *s, double n, double h) {
    if (h <= PLUGIN_WIDE) return 1.0;
    double lost = 0.0;
    for (int j = 0; j < PLUGIN_NODES; j++) {
        double x = PLUGIN_POINTS[j];
        lost += s->nodes[j] * (plugin_tail((1.0 + x) / h) + plugin_tail((2.0 - x) / h));
    }
    return 1.0 - lost / n;
}

/* The part of the endlessly reflected estimate that comes from other copies than the three. */
static double plugin_further(const Plugin *s, double n, double h, double p) {
    double c = -0.5 / (h * h), reach = PLUGIN_REACH * h, total = 0.0;
    for (int j = 0; j < PLUGIN_NODES; j++) {
        double x = PLUGIN_POINTS[j], height = 0.0;
        for (double shift = 2.0; shift - 1.0 <= reach && shift <= 16.0; shift += 2.0) { /* h < 1, so reach < 9 */
            /* the copies x + shift, x - shift, -x - shift, and 2 - x + shift */
            double distances[4] = {shift + x - p, shift - x + p, shift + x + p, shift + 2.0 - x - p};
            for (int i = 0; i < 4; i++)
                if (distances[i] <= reach) height += ex_exp(c * distances[i] * distances[i]);
        }
        total += s->nodes[j] * height;
    }
    return total / (n * h * PLUGIN_ROOT2PI);
}

/* Add the Lagrange polynomials of the nodes at p (barycentric form). */
static void plugin_interpolate(const Plugin *s, double p) {
    double total = 0.0;
    for (int j = 0; j < PLUGIN_NODES; j++) {
        if (p == PLUGIN_POINTS[j]) {
            s->nodes[j] += 1.0;
            return;
        }
        total += PLUGIN_BARYCENTRIC[j] / (p - PLUGIN_POINTS[j]);
    }
    for (int j = 0; j < PLUGIN_NODES; j++) s->nodes[j] += PLUGIN_BARYCENTRIC[j] / (p - PLUGIN_POINTS[j]) / total;
}

/* ------------------------------------------------------------------ the cosine series */

/* cos(k pi p) for k = 1 .. count, a multiple of PLUGIN_LANES: rotations side by side. */
static void plugin_cosines(double p, double *restrict out, int64_t count) {
    double c[PLUGIN_LANES], s[PLUGIN_LANES];
    c[0] = ex_cospi(p), s[0] = ex_sinpi(p);
    for (int k = 1; k < PLUGIN_LANES; k++) {
        c[k] = c[k - 1] * c[0] - s[k - 1] * s[0];
        s[k] = s[k - 1] * c[0] + c[k - 1] * s[0];
    }
    double turn_c = c[PLUGIN_LANES - 1], turn_s = s[PLUGIN_LANES - 1];
    for (int64_t start = 0; start < count; start += PLUGIN_LANES)
        for (int k = 0; k < PLUGIN_LANES; k++) {
            double cosine = c[k], sine = s[k];
            out[start + k] = cosine;
            c[k] = cosine * turn_c - sine * turn_s;
            s[k] = sine * turn_c + cosine * turn_s;
        }
}

/* The cosine series at the p whose cosines are given; the weights q^(k^2) by recurrence. */
static double plugin_series(const Plugin *s, double n, double h, const double *cosines) {
    int64_t terms = smaller((int64_t)ceil(PLUGIN_REACH / (PI * h)), (int64_t)s->head[PLUGIN_ACTIVE]);
    double q = ex_exp(-0.5 * ((PI * h) * (PI * h)));
    double weight = q, ratio = q * q * q, total = 0.0;
    for (int64_t k = 0; k < terms; k++) {
        total += weight * (s->old[k] + s->recent[k]) * cosines[k];
        weight *= ratio;
        ratio *= q * q;
    }
    return 1.0 + 2.0 * total / n;
}

/* Add the cosines of the n-th p: two short sums round less than one long one. */
static void plugin_wave(const Plugin *s, const double *cosines, int64_t active, int64_t n) {
    double *restrict old = s->old, *restrict recent = s->recent;
    for (int64_t k = 0; k < active; k++) recent[k] += cosines[k];
    if (n % PLUGIN_BLOCK) return;
    for (int64_t k = 0; k < active; k++) {
        old[k] += recent[k];
        recent[k] = 0.0;
    }
}

/* C_k = sum_i cos(k pi p_i) from the moments of the cells: cos(x + y) with x the centre, and a power series in y. */
static double plugin_cosine_sum(const Plugin *s, double k) {
    double total = 0.0, turn = k * PI;
    for (int b = 0; b < PLUGIN_CELLS; b++) {
        const double *cell = s->cells + PLUGIN_MOMENTS * b;
        if (cell[0] == 0.0) continue;
        double even = 0.0, odd = 0.0, factor = 1.0; /* sums of cos and sin of k pi (p_i - centre) */
        for (int m = 0; m < PLUGIN_MOMENTS; m += 4) {
            even += factor * cell[m];
            factor *= turn / (m + 1);
            odd += factor * cell[m + 1];
            factor *= turn / (m + 2);
            even -= factor * cell[m + 2];
            factor *= turn / (m + 3);
            odd -= factor * cell[m + 3];
            factor *= turn / (m + 4);
        }
        double centre = k * (b + 0.5) / PLUGIN_CELLS;
        total += ex_cospi(centre) * even - ex_sinpi(centre) * odd;
    }
    return total;
}

/* Maintain as many cosine sums as the bandwidth needs; new ones start with all p-values so far. */
static void plugin_add_waves(const Plugin *s) {
    int64_t active = (int64_t)s->head[PLUGIN_ACTIVE];
    while (active < PLUGIN_WAVES && active * PI * s->head[PLUGIN_WIDTH] < PLUGIN_REACH) {
        for (int64_t k = active; k < active + PLUGIN_LANES; k++) {
            s->old[k] = plugin_cosine_sum(s, k + 1.0);
            s->recent[k] = 0.0;
        }
        active += PLUGIN_LANES;
    }
    s->head[PLUGIN_ACTIVE] = (double)active;
}

/* ------------------------------------------------------------------ tiny densities */

/* sum_i exp(tau u_i - u_i^2/2) over a cell, u_i = sign (p_i - centre)/h, by Hermite polynomials. */
static double plugin_cell_sum(const double *moments, double tau, double h, double sign) {
    double before = 0.0, polynomial = 1.0, factor = 1.0, total = 0.0;
    for (int m = 0; m < PLUGIN_MOMENTS; m++) {
        total += polynomial * factor * moments[m];
        double next = tau * polynomial - m * before;
        before = polynomial, polynomial = next;
        factor *= sign / (h * (m + 1));
    }
    return total;
}

static inline double plugin_least(double a, double b) { return b < a ? b : a; }

/* The distance from p to x or to one of its copies, -x and 2 - x, whichever is nearest, if it is less than so far. */
static inline double plugin_closer(double nearest, double p, double x) {
    return plugin_least(plugin_least(plugin_least(nearest, fabs(p - x)), p + x), 2.0 - x - p);
}

/* The distance from p to the centre of the nearest cell that holds p-values, or to a copy of it. */
static double plugin_nearest_cell(const Plugin *s, double p) {
    double nearest = INFINITY;
    for (int b = 0; b < PLUGIN_CELLS; b++)
        if (s->cells[PLUGIN_MOMENTS * b] > 0.0) nearest = plugin_closer(nearest, p, (b + 0.5) / PLUGIN_CELLS);
    return nearest;
}

/* The sum of the Gaussians of the three copies, relative to one at the distance `nearest`: cell by cell. */
static double plugin_relative_cells(const Plugin *s, double h, double p, double nearest) {
    double total = 0.0;
    for (int b = 0; b < PLUGIN_CELLS; b++) {
        const double *cell = s->cells + PLUGIN_MOMENTS * b;
        if (cell[0] == 0.0) continue;
        double centre = (b + 0.5) / PLUGIN_CELLS;
        double distances[3] = {p - centre, p + centre, p - 2.0 + centre}, signs[3] = {1.0, -1.0, -1.0};
        for (int i = 0; i < 3; i++) {
            double distance = distances[i];
            double exponent = 0.5 * (nearest - distance) * (nearest + distance) / (h * h);
            if (exponent > PLUGIN_FAR) total += ex_exp(exponent) * plugin_cell_sum(cell, distance / h, h, signs[i]);
        }
    }
    return total;
}

/* The distance from p to the nearest mean of an interval of the grid, or to a copy of it. */
static double plugin_nearest_mean(const Plugin *s, double p) {
    double nearest = INFINITY;
    for (int64_t index = 0; index < PLUGIN_GRID_SIZE; index++) {
        const double *interval = plugin_interval(s, index);
        if (interval[PLUGIN_COUNT] > 0.0) nearest = plugin_closer(nearest, p, plugin_spread(interval).mean);
    }
    return nearest;
}

/* Add the Gaussians of an interval's three copies to the total, to second order in its spread. */
static double plugin_add_interval(double total, const double *interval, double h, double p, double nearest) {
    PluginSpread spread = plugin_spread(interval);
    double distances[3] = {p - spread.mean, p + spread.mean, p - 2.0 + spread.mean};
    for (int i = 0; i < 3; i++) {
        double distance = distances[i], u = distance / h;
        double exponent = 0.5 * (nearest - distance) * (nearest + distance) / (h * h);
        if (exponent > PLUGIN_FAR)
            total += interval[PLUGIN_COUNT] * ex_exp(exponent + 0.5 * spread.variance / (h * h) * (u * u - 1.0));
    }
    return total;
}

/* Like plugin_relative_cells, from the intervals of the grid. */
static double plugin_relative_grid(const Plugin *s, double h, double p, double nearest) {
    double total = 0.0;
    for (int64_t block = 0; block < PLUGIN_STRIDES; block++) {
        if (s->blocks[block] == 0.0) continue;
        int64_t end = smaller((block + 1) * PLUGIN_STRIDE, PLUGIN_GRID_SIZE);
        for (int64_t index = block * PLUGIN_STRIDE; index < end; index++) {
            const double *interval = plugin_interval(s, index);
            if (interval[PLUGIN_COUNT] != 0.0) total = plugin_add_interval(total, interval, h, p, nearest);
        }
    }
    return total;
}

/* The log of the three copies' estimate, however small it is. */
static double plugin_log_tail(const Plugin *s, double n, double h, double p) {
    double nearest = plugin_nearest_cell(s, p), total;
    if ((nearest + PLUGIN_REACH * h) * 0.5 / PLUGIN_CELLS <= h * h) { /* then the terms fall like 1/m! */
        total = plugin_relative_cells(s, h, p, nearest);
    } else {
        nearest = plugin_nearest_mean(s, p);
        total = plugin_relative_grid(s, h, p, nearest);
    }
    return ex_log(total / (n * h * PLUGIN_ROOT2PI)) - 0.5 * ((nearest / h) * (nearest / h));
}

/* ------------------------------------------------------------------ a step */

/* The log of the betting function at p, whose cosines are given. */
static double plugin_bet(const Plugin *s, double p, const double *cosines) {
    double n = s->head[PLUGIN_N], h = s->head[PLUGIN_WIDTH];
    if (n == 0.0) return 0.0;
    if (h > 0.0 && PLUGIN_REACH / (PI * h) <= PLUGIN_WAVES) {
        double density = plugin_series(s, n, h, cosines);
        if (h > PLUGIN_WIDE) density -= plugin_further(s, n, h, p);
        if (density >= PLUGIN_FAINT) return ex_log(density / s->head[PLUGIN_MASS]);
    }
    return plugin_log_tail(s, n, h, p) - ex_log(s->head[PLUGIN_MASS]);
}

/* Add the powers of p's distance from the centre of its cell. */
static void plugin_add_moments(const Plugin *s, double p) {
    int64_t b = smaller((int64_t)(p * PLUGIN_CELLS), PLUGIN_CELLS - 1);
    double *cell = s->cells + PLUGIN_MOMENTS * b, offset = p - (b + 0.5) / PLUGIN_CELLS, power = 1.0;
    for (int m = 0; m < PLUGIN_MOMENTS; m++) {
        cell[m] += power;
        power *= offset;
    }
}

/* Count p in its interval of the grid. */
static void plugin_count(const Plugin *s, double p) {
    int64_t index = plugin_index(p);
    double *interval = plugin_interval(s, index);
    if (interval[PLUGIN_COUNT] == 0.0) interval[PLUGIN_ANCHOR] = p;
    double offset = p - interval[PLUGIN_ANCHOR];
    interval[PLUGIN_COUNT] += 1.0;
    interval[PLUGIN_OFFSETS] += offset;
    interval[PLUGIN_OFFSETS2] += offset * offset;
    s->blocks[index / PLUGIN_STRIDE] += 1.0;
    for (int q = 0; q < 2; q++)
        if ((double)index < s->cursors[2 * q]) s->cursors[2 * q + 1] += 1.0;
}

static void plugin_learn(const Plugin *s, double p, const double *cosines, int64_t active) {
    double *head = s->head;
    head[PLUGIN_N] += 1.0;
    Sum sum = sum_add((Sum){head[PLUGIN_SUM], head[PLUGIN_SUM_CARRY]}, p);
    Sum squares = sum_add((Sum){head[PLUGIN_SQUARES], head[PLUGIN_SQUARES_CARRY]}, p * p);
    head[PLUGIN_SUM] = sum.total, head[PLUGIN_SUM_CARRY] = sum.carry;
    head[PLUGIN_SQUARES] = squares.total, head[PLUGIN_SQUARES_CARRY] = squares.carry;
    plugin_wave(s, cosines, active, (int64_t)head[PLUGIN_N]);
    plugin_add_moments(s, p);
    plugin_count(s, p);
    head[PLUGIN_WIDTH] = plugin_bandwidth(s);
    plugin_add_waves(s);
    if (head[PLUGIN_N] <= PLUGIN_EARLY) {
        plugin_interpolate(s, p);
        head[PLUGIN_MASS] = plugin_kept(s, head[PLUGIN_N], head[PLUGIN_WIDTH]);
    }
}

/* ------------------------------------------------------------------ entries */

/* Check the numbers that the loops use as indices and counts: a state may come from a snapshot. */
static const char *plugin_check(const Plugin *s) {
    double n = s->head[PLUGIN_N], active = s->head[PLUGIN_ACTIVE];
    REQUIRE(n >= 0.0 && n <= 0x1p53, "head must hold the number of p-values");
    REQUIRE(active >= 0.0 && active <= PLUGIN_WAVES && active == PLUGIN_LANES * floor(active / PLUGIN_LANES),
            "head must hold the number of cosine sums, a multiple of 16 up to 512");
    for (int q = 0; q < 2; q++)
        REQUIRE(s->cursors[2 * q] >= 0.0 && s->cursors[2 * q] < PLUGIN_GRID_SIZE, "cursors must lie in the grid");
    return NULL;
}

static const char *plugin_state(const Arg *in, Plugin *s) {
    static const int64_t sizes[] = {
        PLUGIN_HEAD, PLUGIN_NODES, 2 * PLUGIN_WAVES, PLUGIN_CELLS * PLUGIN_MOMENTS,
        4,           PLUGIN_GRID_SIZE * PLUGIN_INTERVAL, PLUGIN_STRIDES,
    };
    for (int i = 0; i < 7; i++) REQUIRE(in[i].size == sizes[i], "the arrays of the state must have their sizes");
    double *waves = float64s(&in[2]);
    *s = (Plugin){
        float64s(&in[0]), float64s(&in[1]), waves, waves + PLUGIN_WAVES, float64s(&in[3]), float64s(&in[4]),
        float64s(&in[5]), float64s(&in[6]),
    };
    return plugin_check(s);
}

/* plugin_extend(head, nodes, waves, cells, cursors, grid, blocks, p, out): bet on each p, then learn it. */
static const char *plugin_extend(const Arg *in, Arg *out) {
    (void)out;
    Plugin s;
    const char *wrong = plugin_state(in, &s);
    REQUIRE(!wrong, wrong);
    REQUIRE(in[7].size == in[8].size, "out must be as long as p");
    const double *p = float64s(&in[7]);
    double *gains = float64s(&in[8]), cosines[PLUGIN_WAVES];
    for (int64_t i = 0; i < in[7].size; i++) REQUIRE(p[i] > 0.0 && p[i] <= 1.0, "p must lie in (0, 1]");
    for (int64_t i = 0; i < in[7].size; i++) {
        int64_t active = (int64_t)s.head[PLUGIN_ACTIVE];
        plugin_cosines(p[i], cosines, active);
        gains[i] = plugin_bet(&s, p[i], cosines);
        plugin_learn(&s, p[i], cosines, active);
    }
    return NULL;
}

/* plugin_log_density(head, nodes, waves, cells, cursors, grid, blocks, p): the log of the betting function at p. */
static const char *plugin_log_density(const Arg *in, Arg *out) {
    Plugin s;
    const char *wrong = plugin_state(in, &s);
    REQUIRE(!wrong, wrong);
    double cosines[PLUGIN_WAVES], p = in[7].real;
    plugin_cosines(p, cosines, (int64_t)s.head[PLUGIN_ACTIVE]);
    out[0].real = plugin_bet(&s, p, cosines);
    return NULL;
}

/* plugin_more_waves(head, nodes, waves, cells, cursors, grid, blocks): as many cosine sums as the bandwidth needs. */
static const char *plugin_more_waves(const Arg *in, Arg *out) {
    (void)out;
    Plugin s;
    const char *wrong = plugin_state(in, &s);
    REQUIRE(!wrong, wrong);
    plugin_add_waves(&s);
    return NULL;
}

/* plugin_tables(points, barycentric): the nodes of the interpolation and their weights. */
static const char *plugin_tables(const Arg *in, Arg *out) {
    (void)out;
    REQUIRE(in[0].size == PLUGIN_NODES && in[1].size == PLUGIN_NODES, "there are 20 points, and as many weights");
    memcpy(in[0].data, PLUGIN_POINTS, sizeof PLUGIN_POINTS);
    memcpy(in[1].data, PLUGIN_BARYCENTRIC, sizeof PLUGIN_BARYCENTRIC);
    return NULL;
}

#define PLUGIN_KERNELS \
    ENTRY(plugin_extend, "DDDDDDDpo"), ENTRY(plugin_log_density, "dddddddf>f"), \
        ENTRY(plugin_more_waves, "DdDdddd"), ENTRY(plugin_tables, "DD"),
#define PLUGIN_CONSTANTS \
    CONSTANT(PLUGIN_N), CONSTANT(PLUGIN_SUM), CONSTANT(PLUGIN_SUM_CARRY), CONSTANT(PLUGIN_SQUARES), \
        CONSTANT(PLUGIN_SQUARES_CARRY), CONSTANT(PLUGIN_WIDTH), CONSTANT(PLUGIN_MASS), CONSTANT(PLUGIN_ACTIVE), \
        CONSTANT(PLUGIN_HEAD), CONSTANT(PLUGIN_COUNT), CONSTANT(PLUGIN_INTERVAL), CONSTANT(PLUGIN_NODES), \
        CONSTANT(PLUGIN_WAVES), CONSTANT(PLUGIN_LANES), CONSTANT(PLUGIN_CELLS), CONSTANT(PLUGIN_MOMENTS), \
        CONSTANT(PLUGIN_FINE), CONSTANT(PLUGIN_GRID_SIZE), CONSTANT(PLUGIN_STRIDE), CONSTANT(PLUGIN_STRIDES),

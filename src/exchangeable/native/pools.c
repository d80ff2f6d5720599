/* A growing pool of scores, and the rank of each new one in it: a counted B-tree in flat arrays.
 *
 * Row k of the arrays is node k, with at most WIDTH entries in increasing order. An entry of a leaf is a distinct score
 * and how often it was seen. An entry of an inner node is a child, how many scores are below it, and a bound: all of
 * them are at most the bound, and all that follow are greater (the bound of the last child is not used). A full node is
 * split into two halves on the way down, so that there is always room for what comes up from below.
 *
 * One score costs O(log m) with m the number of distinct scores: at each level one pass over a node, without branches,
 * counts the entries to the left and the scores to the right. Nodes except the root are at least half full, so memory
 * is O(m).
 *
 * Reference: Bayer and McCreight (1972); Comer (1979).
 */

enum { POOL_WIDTH = 64 }; /* entries of a node */

/* head: the root, how many nodes are in use, levels of inner nodes, how many distinct scores, and how many in all */
enum { POOL_ROOT, POOL_NODES, POOL_HEIGHT, POOL_DISTINCT, POOL_TOTAL, POOL_HEAD };

typedef struct {
    int64_t *head;
    int64_t nodes;  /* how many there is room for, */
    int32_t *size;  /* and of each its size, */
    double *score;  /* scores or bounds, */
    int64_t *count; /* counts */
    int32_t *child; /* and children */
} PoolTree;

#define POOL_DAMAGED "the tree of the pool is damaged"
#define POOL_FULL "the pool has no room for more scores"

/* How many nodes this many distinct scores need at most: leaves and inner nodes are at least half full. */
static int64_t pool_most_nodes(int64_t distinct) {
    if (distinct < POOL_WIDTH) return 1;
    int64_t level = distinct / (POOL_WIDTH / 2), nodes = level;
    while (level > 1) {
        level = larger(level / (POOL_WIDTH / 2), 1);
        nodes += level;
    }
    return nodes;
}

/* Whether there is certainly room for one more score; at most `most` distinct ones can occur. */
static bool pool_has_room(const PoolTree *pool, int64_t most) {
    const int64_t *head = pool->head;
    int64_t splits = head[POOL_HEIGHT] + 2; /* one on each level, and a new root */
    if (head[POOL_NODES] + splits <= pool->nodes) return true;
    return pool_most_nodes(smaller(head[POOL_DISTINCT] + 1, most)) <= pool->nodes;
}

/* Move the right half of the parent's full i-th child into a new node, its neighbour to the right. */
static void pool_split(const PoolTree *pool, int64_t parent, int64_t i) {
    enum { HALF = POOL_WIDTH / 2 };
    double *score = pool->score + parent * POOL_WIDTH;
    int64_t *count = pool->count + parent * POOL_WIDTH;
    int32_t *child = pool->child + parent * POOL_WIDTH;
    int64_t left = child[i], right = pool->head[POOL_NODES]++, from = left * POOL_WIDTH + HALF, to = right * POOL_WIDTH;
    int64_t moved = 0;
    for (int64_t j = 0; j < HALF; j++) moved += pool->count[from + j];
    memcpy(pool->score + to, pool->score + from, HALF * sizeof *score);
    memcpy(pool->count + to, pool->count + from, HALF * sizeof *count);
    memcpy(pool->child + to, pool->child + from, HALF * sizeof *child);
    pool->size[left] = pool->size[right] = HALF;
    size_t after = (size_t)(pool->size[parent]++ - i - 1);
    memmove(score + i + 2, score + i + 1, after * sizeof *score);
    memmove(count + i + 2, count + i + 1, after * sizeof *count);
    memmove(child + i + 2, child + i + 1, after * sizeof *child);
    score[i + 1] = score[i], count[i + 1] = moved, child[i + 1] = (int32_t)right;
    score[i] = pool->score[from - 1];
    count[i] -= moved;
}

/* A new root above the old one, which is full and is split in two. */
static int64_t pool_grow(const PoolTree *pool) {
    int64_t root = pool->head[POOL_NODES]++;
    pool->size[root] = 1;
    pool->score[root * POOL_WIDTH] = INFINITY;
    pool->count[root * POOL_WIDTH] = pool->head[POOL_TOTAL];
    pool->child[root * POOL_WIDTH] = (int32_t)pool->head[POOL_ROOT];
    pool->head[POOL_ROOT] = root;
    pool->head[POOL_HEIGHT]++;
    pool_split(pool, root, 0);
    return root;
}

/* Over the first entries of a node: how many scores (or bounds) are less than x, and the counts of the others. */
static inline int64_t pool_look(double x, int64_t size, const double *score, const int64_t *count, int64_t *right) {
    int64_t less = 0, others = 0;
    for (int64_t j = 0; j < size; j++) {
        less += score[j] < x;
        others += score[j] < x ? 0 : count[j];
    }
    *right = others;
    return less;
}

/* Add x, and count the scores that are greater, and those that are equal, itself included. */
static const char *pool_join(const PoolTree *pool, double x, int64_t *greater, int64_t *equal) {
    int64_t *head = pool->head, node = head[POOL_ROOT], right, above = 0;
    if (pool->size[node] == POOL_WIDTH) {
        if (head[POOL_NODES] + 2 > pool->nodes) return POOL_FULL;
        node = pool_grow(pool);
    }
    head[POOL_TOTAL]++;
    for (int64_t level = head[POOL_HEIGHT]; level > 0; level--) {
        double *score = pool->score + node * POOL_WIDTH;
        int64_t *count = pool->count + node * POOL_WIDTH;
        int32_t *child = pool->child + node * POOL_WIDTH;
        int64_t last = pool->size[node] - 1, i = pool_look(x, last, score, count, &right);
        right += count[last];
        if ((uint64_t)child[i] >= (uint64_t)pool->nodes) return POOL_DAMAGED;
        if (pool->size[child[i]] == POOL_WIDTH) {
            if (head[POOL_NODES] >= pool->nodes || last + 1 >= POOL_WIDTH) return POOL_FULL;
            pool_split(pool, node, i);
            if (score[i] < x) right -= count[i++];
        }
        above += right - count[i];
        count[i]++;
        node = child[i];
        if (pool->size[node] < 1 || pool->size[node] > POOL_WIDTH) return POOL_DAMAGED;
    }
    double *score = pool->score + node * POOL_WIDTH;
    int64_t *count = pool->count + node * POOL_WIDTH, size = pool->size[node];
    int64_t i = pool_look(x, size, score, count, &right);
    if (i < size && score[i] == x) {
        *equal = ++count[i];
        *greater = above + right - count[i] + 1;
        return NULL;
    }
    if (size >= POOL_WIDTH) return POOL_FULL;
    memmove(score + i + 1, score + i, (size_t)(size - i) * sizeof *score);
    memmove(count + i + 1, count + i, (size_t)(size - i) * sizeof *count);
    score[i] = x, count[i] = 1;
    pool->size[node]++;
    head[POOL_DISTINCT]++;
    *equal = 1;
    *greater = above + right;
    return NULL;
}

/* The pool in five arrays: head, size, score, count, child. */
static const char *pool_of(const Arg *in, PoolTree *pool) {
    int64_t nodes = in[1].size;
    REQUIRE(in[0].size == POOL_HEAD, "head must hold five numbers");
    REQUIRE(nodes >= 1 && in[2].size == nodes * POOL_WIDTH, "score must have a row of 64 for each node");
    REQUIRE(in[3].size == in[2].size && in[4].size == in[2].size, "count and child must have the shape of score");
    *pool = (PoolTree){int64s(&in[0]), nodes, int32s(&in[1]), float64s(&in[2]), int64s(&in[3]), int32s(&in[4])};
    int64_t root = pool->head[POOL_ROOT], used = pool->head[POOL_NODES], height = pool->head[POOL_HEIGHT];
    REQUIRE(root >= 0 && root < nodes && used >= 1 && used <= nodes && height >= 0 && height < 64, POOL_DAMAGED);
    REQUIRE(pool->size[root] >= (height > 0) && pool->size[root] <= POOL_WIDTH, POOL_DAMAGED);
    return NULL;
}

/* pool_nodes(distinct) -> nodes */
static const char *pool_nodes(const Arg *in, Arg *out) {
    out[0].integer = pool_most_nodes(in[0].integer);
    return NULL;
}

/* pool_add(x, most, head, size, score, count, child) -> (greater, equal, n): add x; at most `most` distinct scores occur.
 * If there may be no room for it, nothing is added, and n is 0. */
static const char *pool_add(const Arg *in, Arg *out) {
    PoolTree pool;
    const char *wrong = pool_of(in + 2, &pool);
    if (wrong) return wrong;
    out[0].integer = out[1].integer = out[2].integer = 0;
    if (!pool_has_room(&pool, in[1].integer)) return NULL;
    wrong = pool_join(&pool, in[0].real, &out[0].integer, &out[1].integer);
    out[2].integer = pool.head[POOL_TOTAL];
    return wrong;
}

/* pool_extend(x, head, size, score, count, child, greater, equal): add the scores x one by one; there must be room for
 * them. */
static const char *pool_extend(const Arg *in, Arg *out) {
    (void)out;
    PoolTree pool;
    const char *wrong = pool_of(in + 1, &pool);
    REQUIRE(in[6].size == in[0].size && in[7].size == in[0].size, "greater and equal must be as long as x");
    const double *x = float64s(&in[0]);
    for (int64_t k = 0; !wrong && k < in[0].size; k++)
        wrong = pool_join(&pool, x[k], int64s(&in[6]) + k, int64s(&in[7]) + k);
    return wrong;
}

#define POOLS_KERNELS \
    ENTRY(pool_nodes, "!n>n"), ENTRY(pool_add, "!fnQLDQL>nnn"), ENTRY(pool_extend, "dQLDQLQQ"),
#define POOLS_CONSTANTS \
    CONSTANT(POOL_WIDTH), CONSTANT(POOL_ROOT), CONSTANT(POOL_NODES), CONSTANT(POOL_HEIGHT), CONSTANT(POOL_DISTINCT), \
        CONSTANT(POOL_TOTAL),

/* The counter-based random number generator Philox4x64-10: the word at any position for any key, computed directly.
 *
 * Word j of key (k0, k1) is word j mod 4 of the block with counter j div 4 + 1, as in NumPy. A block is ten rounds of
 *
 *     (c0, c1, c2, c3) <- (hi(M1 c2) ^ c1 ^ k0, lo(M1 c2), hi(M0 c0) ^ c3 ^ k1, lo(M0 c0)) ,   k0 += W0, k1 += W1
 *
 * on the counter (c0, 0, 0, 0), where hi and lo are the halves of a product of 128 bits.
 *
 * Reference: Salmon, Moraes, Dror, Shaw (2011), Parallel random numbers: as easy as 1, 2, 3, section 3.3.
 */

#define PHILOX_M0 UINT64_C(0xD2E7470EE14C6C93)
#define PHILOX_M1 UINT64_C(0xCA5A826395121157)
#define PHILOX_W0 UINT64_C(0x9E3779B97F4A7C15)
#define PHILOX_W1 UINT64_C(0xBB67AE8584CAA73B)
#define PHILOX_ROUNDS 10

/* The upper 64 bits of the product of two words. Neither sum can overflow. */
static inline uint64_t philox_high(uint64_t a, uint64_t b) {
#if defined(__SIZEOF_INT128__) && !defined(PHILOX_HALVES)
    return (uint64_t)((unsigned __int128)a * b >> 64);
#else
    uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
    uint64_t middle = a1 * b0 + (a0 * b0 >> 32), other = a0 * b1 + (uint32_t)middle;
    return a1 * b1 + (middle >> 32) + (other >> 32);
#endif
}

/* The four words of a counter below 2^64. */
static void philox_block(uint64_t counter, uint64_t k0, uint64_t k1, uint64_t *words) {
    uint64_t c0 = counter, c1 = 0, c2 = 0, c3 = 0;
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        uint64_t high0 = philox_high(PHILOX_M0, c0), high1 = philox_high(PHILOX_M1, c2);
        uint64_t low0 = PHILOX_M0 * c0, low1 = PHILOX_M1 * c2;
        c0 = high1 ^ c1 ^ k0, c1 = low1, c2 = high0 ^ c3 ^ k1, c3 = low0;
        k0 += PHILOX_W0, k1 += PHILOX_W1;
    }
    words[0] = c0, words[1] = c1, words[2] = c2, words[3] = c3;
}

/* The tie-breaking numbers theta = 1 - floor(w / 2^11) / 2^53, uniform in (0, 1], of n positions from `position` on. */
static void philox_thetas(uint64_t seed, uint64_t stream, uint64_t position, int64_t n, double *out) {
    uint64_t words[4];
    for (int64_t i = 0; i < n; i++, position++) {
        if (i == 0 || position % 4 == 0) philox_block(position / 4 + 1, seed, stream, words);
        out[i] = 1.0 - (double)(words[position % 4] >> 11) * 0x1p-53;
    }
}

/* theta(seed, stream, position) -> number */
static const char *theta(const Arg *in, Arg *out) {
    REQUIRE(in[2].integer >= 0, "position must be at least 0");
    philox_thetas((uint64_t)in[0].integer, (uint64_t)in[1].integer, (uint64_t)in[2].integer, 1, &out[0].real);
    return NULL;
}

/* thetas(seed, stream, start, out) */
static const char *thetas(const Arg *in, Arg *out) {
    (void)out;
    REQUIRE(in[2].integer >= 0, "start must be at least 0");
    philox_thetas((uint64_t)in[0].integer, (uint64_t)in[1].integer, (uint64_t)in[2].integer, in[3].size,
                  float64s(&in[3]));
    return NULL;
}

#define PHILOX_KERNELS \
    ENTRY(theta, "!kkn>f"), \
    ENTRY(thetas, "kknD"),
#define PHILOX_CONSTANTS

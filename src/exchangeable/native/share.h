/* Capital shared among m bets, part of which moves before each step: "memory share" with the parameters s and g,
 *
 *     w_k <- ((1 - s) w_k + s t_k) f_k/f ,   f = sum_k ((1 - s) w_k + s t_k) f_k ,   t_k = (1 - g) prior_k + g r_k ,
 *
 * where r is the mean of the prior and of the shares after steps 8, 16, ..., when t is updated.
 * Shares are stored without their common factor, together with their sum, so that a step is one pass over the bets.
 * Arrays are padded to a multiple of 8 with bets of density 0.
 *
 * Reference: Bousquet and Warmuth (2002), "uniform past".
 */
#ifndef EXCHANGEABLE_SHARE_H
#define EXCHANGEABLE_SHARE_H

#include "lanes.h"

enum { SHARE_EVERY = 8 };

typedef struct {
    double share, memory; /* s, g */
} Share;

/* The factors of the shares, whose sum is `total`, and of their targets t. */
typedef struct {
    Lanes stay, moved;
} ShareStep;

static inline ShareStep share_begin(Share with, double total) {
    return (ShareStep){lanes_fill((1.0 - with.share) / total), lanes_fill(with.share)};
}

/* Eight shares after the move. */
static inline Lanes share_move(const ShareStep *step, const double *w, const double *t) {
    return lanes_add(lanes_mul(lanes_load(w), step->stay), lanes_mul(lanes_load(t), step->moved));
}

/* The density of the mixture: the sum of the new shares w, which are stored. */
static inline double share_bet(const ShareStep *step, double *w, const double *t, const double *f, int64_t count) {
    Lanes sum = lanes_fill(0.0);
    for (int64_t k = 0; k < count; k += LANES) {
        Lanes grown = lanes_mul(share_move(step, w + k, t + k), lanes_load(f + k));
        lanes_store(w + k, grown);
        sum = lanes_add(sum, grown);
    }
    return lanes_sum(sum);
}

/* Update the targets after step number n, if it is time to. */
static inline void share_remember(Share with, const double *w, double total, const double *prior, double n, double *t,
                                  int64_t count) {
    if (!(with.memory > 0.0) || remainder_of(n, SHARE_EVERY)) return;
    double rate = 1.0 / (n / SHARE_EVERY + 1.0);
    for (int64_t k = 0; k < count; k++)
        t[k] += ((1.0 - with.memory) * prior[k] + with.memory * (w[k] / total) - t[k]) * rate;
}

#endif

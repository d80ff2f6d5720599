/* Capital shared among m bets, part of which moves before each step: "memory share" with the parameters s and g,
 *
 *     w_k <- ((1 - s) w_k + s ((1 - g) prior_k + g r_k)) f_k/f ,   f = sum_k ((1 - s) w_k + s ((1 - g) prior_k + g r_k)) f_k ,
 *     r_k <- r_k + (w_k - r_k)/(n + 1) after n steps: the mean of the prior and of all past shares.
 *
 * Shares are stored without their common factor, together with their sum, and r lags one step behind, so that a step
 * is one pass over the bets. Arrays are padded to a multiple of 8 with bets of density 0.
 *
 * Reference: Bousquet and Warmuth (2002), "uniform past".
 */
#ifndef EXCHANGEABLE_SHARE_H
#define EXCHANGEABLE_SHARE_H

#include "lanes.h"

typedef struct {
    double share, memory; /* s, g */
} Share;

/* Factors of a step, the same for all bets. */
typedef struct {
    double keep, learn;           /* of r, of w: r <- keep r + learn w */
    double stay, fresh, recalled; /* of w, the prior, r */
    bool remembers;
} ShareStep;

/* Step number n, counted from 1, of shares whose sum is `total`. */
static inline ShareStep share_begin(Share with, double total, double n) {
    double scale = 1.0 / total, new = 1.0 / n;
    return (ShareStep){1.0 - new, new * scale, (1.0 - with.share) * scale, with.share * (1.0 - with.memory),
                       with.share * with.memory, with.memory > 0.0};
}

/* The shares of eight bets after the move; r learns those before it. `fresh` is what each gets of the prior. */
static inline Lanes share_move(const ShareStep *step, const double *w, double *r, Lanes fresh) {
    Lanes shares = lanes_load(w), moved = lanes_add(lanes_mul(shares, lanes_fill(step->stay)), fresh);
    if (!step->remembers) return moved;
    Lanes mean = lanes_mul(lanes_load(r), lanes_fill(step->keep));
    mean = lanes_add(mean, lanes_mul(shares, lanes_fill(step->learn)));
    lanes_store(r, mean);
    return lanes_add(moved, lanes_mul(mean, lanes_fill(step->recalled)));
}

/* The density of the mixture: the sum of the new shares w, which are stored. */
static inline double share_bet(const ShareStep *step, double *w, double *r, const double *prior, const double *f,
                               int64_t count) {
    Lanes sum = lanes_fill(0.0);
    for (int64_t k = 0; k < count; k += LANES) {
        Lanes moved = share_move(step, w + k, r + k, lanes_mul(lanes_fill(step->fresh), lanes_load(prior + k)));
        Lanes grown = lanes_mul(moved, lanes_load(f + k));
        lanes_store(w + k, grown);
        sum = lanes_add(sum, grown);
    }
    return lanes_sum(sum);
}

#endif

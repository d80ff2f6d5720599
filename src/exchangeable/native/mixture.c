/* Power bets, eps p^(eps - 1): a single one, and mixtures of them, in closed form for any number of steps.
 *
 * The simple mixture: with s = n + 1 and a = -sum ln p_i,
 *
 *     S_n = int_0^1 eps^n e^{a (1 - eps)} d eps = e^a gamma(s, a) / a^s .
 *
 * Three forms, each used where all its terms are positive or tiny, so that nothing large cancels:
 *
 * - Kummer's series S_n = sum_k a^k / (s (s+1) ... (s+k)) for small s, and wherever it converges fast (a < s/2);
 * - Temme's uniform expansion around a = s, with eta^2/2 = a/s - 1 - ln(a/s),
 *   P(s, a) = erfc(-eta sqrt(s/2))/2 - e^{-s eta^2/2} / sqrt(2 pi s) * sum_k c_k(eta) s^-k; below a = s the factor
 *   e^{-s eta^2/2} cancels against that of S_n, and erfcx takes the place of erfc;
 * - far above, P = 1 to the last bit, and S_n is elementary.
 *
 * References: DLMF 8.7, 8.12; Temme (1979); Fedorova et al. (2012), equation (7).
 */

enum { MIXTURE_LEVELS = 9, MIXTURE_TERMS = 26 }; /* powers of 1/s and of eta: below 1e-16 for s >= 100 and a >= s/2 */
static const double MIXTURE_SMALL = 100.0; /* for s below it, Kummer's series takes at most a few hundred terms, */
enum { MIXTURE_KUMMER = 10000 }; /* so it never reaches this many, except with a forged state */

/* Taylor coefficients of c_k(eta): exact rationals, rounded once (DLMF 8.12.8 to 8.12.10). tests/test_bets.py
 * recomputes them. */
static const double MIXTURE_COEFFICIENTS[MIXTURE_LEVELS][4 * LANES] = {
    {-0.3333333333333333,     0.08333333333333333,    -0.014814814814814815,   0.0011574074074074073,
     0.0003527336860670194,   -0.0001787551440329218, 3.919263178522438e-05,   -2.185448510679992e-06,
     -1.85406221071516e-06,   8.296711340953087e-07,  -1.7665952736826078e-07, 6.707853543401498e-09,
     1.0261809784240309e-08,  -4.382036018453353e-09, 9.14769958223679e-10,    -2.5514193994946248e-11,
     -5.830772132550426e-11,  2.4361948020667415e-11, -5.0276692801141755e-12, 1.1004392031956135e-13,
     3.371763262400985e-13,   -1.392388722418162e-13, 2.8534893807047445e-14,  -5.139111834242572e-16,
     -1.9752288294349442e-15, 8.099521156704561e-16},
    {-0.001851851851851852,   -0.003472222222222222,   0.0026455026455026454,   -0.0009902263374485596,
     0.00020576131687242798,  -4.018775720164609e-07,  -1.8098550334489977e-05, 7.64916091608111e-06,
     -1.6120900894563446e-06, 4.647127802807434e-09,   1.378633446915721e-07,   -5.752545603517705e-08,
     1.1951628599778148e-08,  -1.7543241719747647e-11, -1.0091543710600413e-09, 4.162792991842583e-10,
     -8.56390702649298e-11,   6.067215101604758e-14,   7.1624989648114856e-12,  -2.933186643771437e-12,
     5.996696365683689e-13,   -2.1671786527323313e-16, -4.978339972369262e-14,  2.0291628823713425e-14,
     -4.13125571381061e-15,   8.286516239883097e-19},
    {0.004133597883597883,    -0.0026813271604938273,  0.0007716049382716049,   2.0093878600823047e-06,
     -0.0001073665322636516,  5.2923448829120125e-05,  -1.2760635188618728e-05, 3.423578734096138e-08,
     1.3721957309062934e-06,  -6.298992138380055e-07,  1.4280614206064242e-07,  -2.0477098421990866e-10,
     -1.409252991086752e-08,  6.228974084922022e-09,   -1.3670488396617114e-09, 9.428356159014678e-13,
     1.2872252400089318e-10,  -5.5645956134363323e-11, 1.197593554636698e-11,   -4.1689782251838634e-15,
     -1.0940640427884595e-12, 4.662239946390136e-13,   -9.905105763906907e-14,  1.8931876768373515e-17,
     8.859221872591127e-15,   -3.737820398046405e-15},
    {0.0006494341563786008,   0.00022947209362139917,  -0.0004691894943952557,  0.00026772063206283885,
     -7.561801671883977e-05,  -2.396505113867297e-07,  1.1082654115347302e-05,  -5.6749528269915965e-06,
     1.4230900732435883e-06,  -2.7861080291528143e-11, -1.6958404091930278e-07, 8.099464905388083e-08,
     -1.9111168485973655e-08, 2.3928620439808118e-12,  2.0620131815488797e-09,  -9.460496661855133e-10,
     2.1541049775774907e-10,  -1.388823336813903e-14,  -2.1894761681963938e-11, 9.790998951171684e-12,
     -2.178219188018096e-12,  6.208819573407901e-17,   2.126978363279737e-13,   -9.344688791517433e-14,
     2.045367122678285e-14,   -2.58260790403495e-19},
    {-0.0008618882909167117,  0.0007840392217200666,   -0.0002990724803031902, -1.4638452578843418e-06,
     6.641498215465122e-05,   -3.968365047179435e-05,  1.1375726970678419e-05, 2.507497226237533e-10,
     -1.6954149536558305e-06, 8.907507532205309e-07,   -2.292934834000805e-07, 2.956794137544049e-11,
     2.8865829742708783e-08,  -1.4189739437803219e-08, 3.4463580499464896e-09, -2.3024517174528067e-13,
     -3.9409233028046403e-10, 1.86023389685045e-10,    -4.356323005056618e-11, 1.278600101629623e-15,
     4.67927502665792e-12,    -2.149246470613483e-12,  4.908815614809652e-13,  -6.33859148489156e-18,
     -5.045332069080094e-14,  2.2722958222901286e-14},
    {-0.00033679855336635813, -6.972813758365857e-05,  0.0002772753244959392,   -0.00019932570516188847,
     6.797780477937208e-05,   1.419062920643967e-07,   -1.3594048189768693e-05, 8.018470256334202e-06,
     -2.291481176508095e-06,  -3.252473551298454e-10,  3.4652846491085265e-07,  -1.8447187191171344e-07,
     4.8240967037894184e-08,  -1.7989466721743514e-14, -6.306194500013523e-09,  3.162417628774568e-09,
     -7.840924253697429e-10,  5.192679165254041e-15,   9.358944242306784e-11,   -4.513426216163278e-11,
     1.0799129993116828e-11,  -3.661886712685252e-17,  -1.210902069055155e-12,  5.680743584990564e-13,
     -1.3249659916340829e-13, 1.8987240764284076e-19},
    {0.0005313079364639922,   -0.0005921664373536939,  0.0002708782096718045,   7.902353232660328e-07,
     -8.153969367561969e-05,  5.61168275310625e-05,    -1.8329116582843375e-05, -3.0796134506033047e-09,
     3.465155368803609e-06,   -2.0291327396058603e-06, 5.788792863149004e-07,   2.338630673826657e-13,
     -8.828600746330484e-08,  4.7435958880408125e-08,  -1.2545415020710383e-08, 8.649648858010293e-14,
     1.6846058979264062e-09,  -8.575492823577594e-10,  2.1598224929232125e-10,  -7.613230520476153e-16,
     -2.6639822008536144e-11, 1.3065700536611057e-11,  -3.1799163902367977e-12, 4.710976121367431e-18,
     3.6902800842763465e-13,  -1.7612674046201426e-13},
    {0.00034436760689237765,  5.171790908260592e-05,   -0.00033493161081142234, 0.0002812695154763237,
     -0.00010976582244684731, -1.2741009095484485e-07, 2.7744451511563645e-05,  -1.8263488805711332e-05,
     5.7876949497350525e-06,  4.93875893393627e-10,    -1.0595367014026043e-06, 6.166714376110408e-07,
     -1.7562973359060463e-07, -1.297447328701544e-12,  2.695423606288966e-08,   -1.4578352908731272e-08,
     3.887645959386175e-09,   -3.881002251019412e-17,  -5.327994173877286e-10,  2.7437977643314844e-10,
     -6.995796092070568e-11,  2.589986387486848e-17,   8.856689099669639e-12,   -4.403168815871311e-12,
     1.0865561947091654e-12,  -2.0467988447416678e-19},
    {-0.0006526239185953094,  0.0008394987206720873,   -0.000438297098541721,   -6.969091458420552e-07,
     0.00016644846642067547,  -0.00012783517679769218, 4.629953263691304e-05,   4.557909867922708e-09,
     -1.0595271125805195e-05, 6.783342904865167e-06,   -2.1075476666258803e-06, -1.7213731432817144e-11,
     3.773587741611098e-07,   -2.1867506700122867e-07, 6.220228804018927e-08,   6.597703826733e-16,
     -9.590386497425686e-09,  5.213214492280807e-09,   -1.3991589583935709e-09, 5.382058999060575e-16,
     1.9484714275467745e-10,  -1.0127287556389682e-10, 2.6077347197254926e-11,  -5.090418699993299e-18,
     -3.3721464474854593e-12, 1.6953089140808568e-12},
};

/* Log of Kummer's series. */
static double mixture_kummer(double s, double a) {
    double term = 1.0 / s, total = term;
    for (int k = 0; k < MIXTURE_KUMMER && term > total * 1e-18; k++) {
        s += 1.0;
        term *= a / s;
        total += term;
    }
    return ex_log(total);
}

/* mu - log1p(mu) without cancellation: near 0 by sum_{k>1} (-mu)^k / k. */
static double mixture_half_eta_squared(double mu) {
    static const double FIRST[LANES] = {1.0 / 2, 1.0 / 3, 1.0 / 4, 1.0 / 5, 1.0 / 6, 1.0 / 7, 1.0 / 8, 1.0 / 9};
    static const double NEXT[LANES] = {1.0 / 10, 1.0 / 11, 1.0 / 12, 1.0 / 13, 1.0 / 14, 1.0 / 15, 1.0 / 16, 1.0 / 17};
    if (fabs(mu) > 0.1) return mu - ex_log1p(mu);
    double square = mu * mu, fourth = square * square;
    Lanes terms = lanes_add(lanes_load(FIRST), lanes_mul(lanes_fill(fourth * fourth), lanes_load(NEXT)));
    return square * lanes_sum(lanes_mul(lanes_powers(-mu), terms));
}

/* sum_k c_k(eta) s^-k: the coefficients of eight powers of eta side by side, in `blocks` blocks. */
static inline double mixture_terms(double inverse, double eta, int levels, int blocks) {
    double square = eta * eta, fourth = square * square;
    Lanes r = lanes_fill(inverse), eighth = lanes_fill(fourth * fourth), total = lanes_fill(0.0);
    for (int b = blocks - 1; b >= 0; b--) {
        Lanes sum = lanes_load(MIXTURE_COEFFICIENTS[levels - 1] + b * LANES);
        for (int k = levels - 2; k >= 0; k--)
            sum = lanes_add(lanes_mul(sum, r), lanes_load(MIXTURE_COEFFICIENTS[k] + b * LANES));
        total = lanes_add(lanes_mul(total, eighth), sum);
    }
    return lanes_sum(lanes_mul(total, lanes_powers(eta)));
}

/* sum_k c_k(eta) s^-k / sqrt(2 pi s), with as many terms as the last bit of a double needs. */
static double mixture_correction(double s, double eta) {
    int levels = s < 1e4 ? MIXTURE_LEVELS : s < 1e6 ? 5 : 3;
    double inverse = 1.0 / s;
    double total = fabs(eta) <= 0.1 ? mixture_terms(inverse, eta, levels, 2) : mixture_terms(inverse, eta, levels, 4);
    return total / sqrt(2.0 * PI * s);
}

/* lnGamma(s) - s ln s + s for s >= 100. */
static double mixture_log_stirling(double s) {
    double inverse = 1.0 / s, r = inverse * inverse;
    double series = 1.0 / 12.0 - r * (1.0 / 360.0 - r * (1.0 / 1260.0 - r * (1.0 / 1680.0)));
    return 0.5 * ex_log(2.0 * PI * inverse) + series * inverse;
}

/* log S_n by Temme's expansion, with mu = a/s - 1.
 *
 * With z = |eta| sqrt(s/2), e^{z^2} times the smaller of P and Q = 1 - P is erfcx(z)/2 + correction(|eta|) above
 * a = s, and erfcx(z)/2 - correction(-|eta|) below.
 */
static double mixture_central(double s, double mu) {
    double half = mixture_half_eta_squared(mu), stirling = mixture_log_stirling(s);
    double z = sqrt(s * half), eta = sqrt(2.0 * half);
    if (!(mu > 0.0)) return stirling + ex_log(0.5 * ex_erfcx(z) - mixture_correction(s, -eta));
    double value = s * half + stirling;
    if (!(z < 6.5)) return value; /* Q < 1e-19 */
    return value + ex_log1p(-ex_exp(-s * half) * (0.5 * ex_erfcx(z) + mixture_correction(s, eta)));
}

/* log S_n of the simple mixture after n p-values with -sum ln p = a + carry. */
static double mixture_log_value(double n, double a, double carry) {
    double s = n + 1.0;
    if (s < MIXTURE_SMALL && a >= s + 200.0) return a + carry + ex_lgamma(s) - s * ex_log(a);
    if (s < MIXTURE_SMALL || a < 0.5 * s) return mixture_kummer(s, a + carry);
    return mixture_central(s, ((a - s) + carry) / s);
}

/* Power bets mixed over epsilon ~ Gamma(b, rate c): S_n = e^a c^b Gamma(n + b)/(Gamma(b) (a + c)^(n + b)) with
 * a = -sum ln p_i, so that with L = -ln p and A = a + c the next density is
 *
 *     f(p) = ((n + b)/A) e^L (1 + L/A)^-(n + b + 1) .
 *
 * Returns the log of f without (n + b)/A, which is stored in `factor`; then learns p. state = (n, a, its carry).
 */
static inline double gamma_mixture_step(double *state, double shape, double rate, double log_p, double *factor) {
    double all = (state[1] + rate) + state[2], s = state[0] + shape;
    Sum a = sum_add((Sum){state[1], state[2]}, -log_p);
    state[0] += 1.0, state[1] = a.total, state[2] = a.carry;
    *factor = s / all;
    return -log_p - (s + 1.0) * ex_log1p(-log_p / all);
}

/* Bet on p, then learn it: log S_{n+1} - log S_n. state = (n, -sum ln p, its carry, log S_n). */
static inline double mixture_learn(double *state, Sum a, double value) {
    double gain = value - state[3];
    state[0] += 1.0;
    state[1] = a.total, state[2] = a.carry, state[3] = value;
    return gain;
}

static inline double mixture_step(double *state, double log_p) {
    Sum a = sum_add((Sum){state[1], state[2]}, -log_p);
    return mixture_learn(state, a, mixture_log_value(state[0] + 1.0, a.total, a.carry));
}

static void mixture_extend(double *state, const double *p, int64_t n, double *out) {
    for (int64_t i = 0; i < n; i++) out[i] = ex_log(p[i]); /* several at once */
    for (int64_t i = 0; i < n; i++) out[i] = mixture_step(state, out[i]);
}

static void gamma_mixture_extend(double *state, double shape, double rate, const double *p, int64_t n, double *out) {
    for (int64_t i = 0; i < n; i++) {
        double factor, exponent = gamma_mixture_step(state, shape, rate, ex_log(p[i]), &factor);
        out[i] = exponent + ex_log(factor);
    }
}

/* power(epsilon, p, out): ln epsilon + (epsilon - 1) ln p */
static const char *power(const Arg *in, Arg *out) {
    (void)out;
    REQUIRE(in[1].size == in[2].size, "out must be as long as p");
    double log_epsilon = ex_log(in[0].real), exponent = in[0].real - 1.0;
    for (int64_t i = 0; i < in[1].size; i++) float64s(&in[2])[i] = log_epsilon + exponent * ex_log(float64s(&in[1])[i]);
    return NULL;
}

/* simple_mixture(state, p, out) */
static const char *simple_mixture(const Arg *in, Arg *out) {
    (void)out;
    REQUIRE(in[0].size == 4, "state must hold 4 numbers");
    REQUIRE(in[1].size == in[2].size, "out must be as long as p");
    mixture_extend(float64s(&in[0]), float64s(&in[1]), in[1].size, float64s(&in[2]));
    return NULL;
}

/* gamma_mixture(state, shape, rate, p, out) */
static const char *gamma_mixture(const Arg *in, Arg *out) {
    (void)out;
    REQUIRE(in[0].size == 3, "state must hold 3 numbers");
    REQUIRE(in[3].size == in[4].size, "out must be as long as p");
    gamma_mixture_extend(float64s(&in[0]), in[1].real, in[2].real, float64s(&in[3]), in[3].size, float64s(&in[4]));
    return NULL;
}

/* simple_mixture_log_value(n, a, carry) -> number */
static const char *simple_mixture_log_value(const Arg *in, Arg *out) {
    out[0].real = mixture_log_value(in[0].real, in[1].real, in[2].real);
    return NULL;
}

/* mixture_coefficients(out): the table of Temme's expansion */
static const char *mixture_coefficients(const Arg *in, Arg *out) {
    (void)out;
    REQUIRE(in[0].size == MIXTURE_LEVELS * MIXTURE_TERMS, "out must have the size of the table");
    for (int k = 0; k < MIXTURE_LEVELS; k++)
        memcpy(float64s(&in[0]) + k * MIXTURE_TERMS, MIXTURE_COEFFICIENTS[k], MIXTURE_TERMS * sizeof(double));
    return NULL;
}

#define MIXTURE_KERNELS \
    ENTRY(power, "fpo"), ENTRY(simple_mixture, "Dpo"), ENTRY(gamma_mixture, "Dffpo"), \
        ENTRY(simple_mixture_log_value, "fff>f"), ENTRY(mixture_coefficients, "D"),
#define MIXTURE_CONSTANTS CONSTANT(MIXTURE_LEVELS), CONSTANT(MIXTURE_TERMS),

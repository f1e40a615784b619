/* dft_gpu.cuh: DFTs of 2 to 10, 12 and 16 points with exponent +, in a thread's registers, in place, in natural order:
 * the butterflies of fft_gpu.cu. Those of 16 points leave the cosine of each constant factor to the sum that the
 * product goes into, where it costs nothing: (x - y tan, y + x tan) is two instructions, the whole product four. */
#ifndef MRIRECON_DFT_GPU_CUH
#define MRIRECON_DFT_GPU_CUH

static __device__ __forceinline__ float2 add(float2 a, float2 b)
{
    return make_float2(a.x + b.x, a.y + b.y);
}

static __device__ __forceinline__ float2 sub(float2 a, float2 b)
{
    return make_float2(a.x - b.x, a.y - b.y);
}

static __device__ __forceinline__ float2 mul(float2 a, float2 b)
{
    return make_float2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

static __device__ __forceinline__ float2 mul_i(float2 a)
{
    return make_float2(-a.y, a.x);
}

static __device__ __forceinline__ float2 axpy(float s, float2 a, float2 b)
{
    return make_float2(fmaf(s, a.x, b.x), fmaf(s, a.y, b.y));
}

/* x^first - x^(first + 2) / (first + 2)! + ..: cos x or sin x, for the compiler. */
static __host__ __device__ constexpr double power_series(double x, int first)
{
    double term = first ? x : 1, sum = term;
    for (int i = first + 1; i < 40; i += 2) {
        term *= -x * x / (i * (i + 1.0));
        sum += term;
    }
    return sum;
}

/* exp(pi i N / 16) = i^quarters cos (1 + i tan), with the angle of the last factor between -pi / 4 and pi / 4. */
template <int N> struct sixteenths {
    static constexpr int quarters = (N + 4) / 8, rest = N - 8 * quarters;
    static constexpr double cos = power_series(3.14159265358979323846 / 16 * rest, 0);
    static constexpr double tan = power_series(3.14159265358979323846 / 16 * rest, 1) / cos;
};

/* a exp(pi i N / 16), less the factor sixteenths<N>::cos. */
template <int N> static __device__ __forceinline__ float2 turn_but_cos(float2 a)
{
    constexpr int quarters = sixteenths<N>::quarters % 4, rest = sixteenths<N>::rest;
    constexpr float tan = (float)sixteenths<N>::tan;
    float2 b = a;
    if constexpr (rest == 4)
        b = make_float2(a.x - a.y, a.y + a.x);
    else if constexpr (rest == -4)
        b = make_float2(a.x + a.y, a.y - a.x);
    else if constexpr (rest != 0)
        b = make_float2(fmaf(-tan, a.y, a.x), fmaf(tan, a.x, a.y));
    if constexpr (quarters >= 2)
        b = make_float2(-b.x, -b.y);
    return quarters % 2 ? mul_i(b) : b;
}

static __device__ __forceinline__ void dft2(float2 &a, float2 &b)
{
    float2 t = a;
    a = add(t, b);
    b = sub(t, b);
}

static __device__ __forceinline__ void dft3(float2 &a, float2 &b, float2 &c)
{
    float2 s = add(b, c), d = mul_i(sub(b, c)), m = axpy(-0.5f, s, a);
    a = add(a, s);
    b = axpy(0.86602540378443865f, d, m);
    c = axpy(-0.86602540378443865f, d, m);
}

static __device__ __forceinline__ void dft4(float2 &a, float2 &b, float2 &c, float2 &d)
{
    float2 s = add(a, c), t = sub(a, c), u = add(b, d), v = mul_i(sub(b, d));
    a = add(s, u);
    b = add(t, v);
    c = sub(s, u);
    d = sub(t, v);
}

/* dft4() of a, b exp(pi i N1 / 16), c exp(pi i N2 / 16), d exp(pi i N3 / 16). */
template <int N1, int N2, int N3>
static __device__ __forceinline__ void dft4_turned(float2 &a, float2 &b, float2 &c, float2 &d)
{
    constexpr float cos1 = (float)sixteenths<N1>::cos, cos2 = (float)sixteenths<N2>::cos,
                    ratio = (float)(sixteenths<N3>::cos / sixteenths<N1>::cos);
    const float2 b1 = turn_but_cos<N1>(b), c1 = turn_but_cos<N2>(c), d1 = turn_but_cos<N3>(d);
    const float2 s = axpy(cos2, c1, a), t = axpy(-cos2, c1, a);
    const float2 u = axpy(ratio, d1, b1), v = mul_i(axpy(-ratio, d1, b1));
    a = axpy(cos1, u, s);
    b = axpy(cos1, v, t);
    c = axpy(-cos1, u, s);
    d = axpy(-cos1, v, t);
}

static __device__ __forceinline__ void dft5(float2 &a, float2 &b, float2 &c, float2 &d, float2 &e)
{
    const float c1 = 0.30901699437494745f, c2 = -0.80901699437494742f, s1 = 0.95105651629515357f,
                s2 = 0.58778525229247314f;
    float2 t1 = add(b, e), t2 = add(c, d), u1 = mul_i(sub(b, e)), u2 = mul_i(sub(c, d));
    float2 m1 = axpy(c2, t2, axpy(c1, t1, a)), m2 = axpy(c1, t2, axpy(c2, t1, a));
    float2 p = make_float2(s1 * u1.x + s2 * u2.x, s1 * u1.y + s2 * u2.y),
           q = make_float2(s2 * u1.x - s1 * u2.x, s2 * u1.y - s1 * u2.y);
    a = add(a, add(t1, t2));
    b = add(m1, p);
    e = sub(m1, p);
    c = add(m2, q);
    d = sub(m2, q);
}

static __device__ __forceinline__ void dft7(float2 *v)
{
    const float c1 = 0.62348980185873353f, c2 = -0.22252093395631440f, c3 = -0.90096886790241913f;
    const float s1 = 0.78183148246802981f, s2 = 0.97492791218182361f, s3 = 0.43388373911755812f;
    float2 t1 = add(v[1], v[6]), t2 = add(v[2], v[5]), t3 = add(v[3], v[4]);
    float2 u1 = mul_i(sub(v[1], v[6])), u2 = mul_i(sub(v[2], v[5])), u3 = mul_i(sub(v[3], v[4]));
    float2 m1 = axpy(c3, t3, axpy(c2, t2, axpy(c1, t1, v[0]))), m2 = axpy(c1, t3, axpy(c3, t2, axpy(c2, t1, v[0])));
    float2 m3 = axpy(c2, t3, axpy(c1, t2, axpy(c3, t1, v[0])));
    float2 zero = make_float2(0.f, 0.f);
    float2 p1 = axpy(s3, u3, axpy(s2, u2, axpy(s1, u1, zero))), p2 = axpy(-s1, u3, axpy(-s3, u2, axpy(s2, u1, zero)));
    float2 p3 = axpy(s2, u3, axpy(-s1, u2, axpy(s3, u1, zero)));
    v[0] = add(v[0], add(t1, add(t2, t3)));
    v[1] = add(m1, p1);
    v[6] = sub(m1, p1);
    v[2] = add(m2, p2);
    v[5] = sub(m2, p2);
    v[3] = add(m3, p3);
    v[4] = sub(m3, p3);
}

static __device__ __forceinline__ void dft8(float2 *v)
{
    const float h = 0.70710678118654752f;
    dft4(v[0], v[2], v[4], v[6]);
    dft4(v[1], v[3], v[5], v[7]);
    const float2 three = make_float2(v[3].x - v[3].y, v[3].x + v[3].y), five = mul_i(v[5]),
                 seven = make_float2(-(v[7].x + v[7].y), v[7].x - v[7].y);
    float2 t[8] = {add(v[0], v[1]), axpy(h, three, v[2]),  add(v[4], five), axpy(h, seven, v[6]),
                   sub(v[0], v[1]), axpy(-h, three, v[2]), sub(v[4], five), axpy(-h, seven, v[6])};
#pragma unroll
    for (int k = 0; k < 8; k++)
        v[k] = t[k];
}

static __device__ __forceinline__ void dft9(float2 *v)
{
    const float2 w1 = {0.76604444311897804f, 0.64278760968653933f}, w2 = {0.17364817766693035f, 0.98480775301220806f},
                 w4 = {-0.93969262078590838f, 0.34202014332566873f};
    dft3(v[0], v[3], v[6]);
    dft3(v[1], v[4], v[7]);
    dft3(v[2], v[5], v[8]);
    v[4] = mul(v[4], w1);
    v[5] = mul(v[5], w2);
    v[7] = mul(v[7], w2);
    v[8] = mul(v[8], w4);
    dft3(v[0], v[1], v[2]);
    dft3(v[3], v[4], v[5]);
    dft3(v[6], v[7], v[8]);
    /* 3 a + b now holds output a + 3 b */
    float2 t[9] = {v[0], v[3], v[6], v[1], v[4], v[7], v[2], v[5], v[8]};
#pragma unroll
    for (int k = 0; k < 9; k++)
        v[k] = t[k];
}

/* v[4 a + b] holds output a + COUNT b: put the outputs in order. */
template <int COUNT> static __device__ __forceinline__ void fours_ordered(float2 *v)
{
    float2 t[4 * COUNT];
#pragma unroll
    for (int k = 0; k < 4 * COUNT; k++)
        t[k % 4 * COUNT + k / 4] = v[k];
#pragma unroll
    for (int k = 0; k < 4 * COUNT; k++)
        v[k] = t[k];
}

static __device__ __forceinline__ void dft12(float2 *v)
{
    const float h = 0.86602540378443865f;
    const float2 w1 = {h, 0.5f}, w2 = {0.5f, h}, w4 = {-0.5f, h};
#pragma unroll
    for (int k = 0; k < 4; k++)
        dft3(v[k], v[k + 4], v[k + 8]);
    v[5] = mul(v[5], w1);
    v[6] = mul(v[6], w2);
    v[7] = mul_i(v[7]);
    v[9] = mul(v[9], w2);
    v[10] = mul(v[10], w4);
    v[11] = make_float2(-v[11].x, -v[11].y);
#pragma unroll
    for (int a = 0; a < 3; a++)
        dft4(v[4 * a], v[4 * a + 1], v[4 * a + 2], v[4 * a + 3]);
    fours_ordered<3>(v);
}

/* H = 1: of v[r] exp(pi i r / 16), whose factors are joined with those between the two rounds. */
template <int H> static __device__ __forceinline__ void dft16(float2 *v)
{
#pragma unroll
    for (int k = 0; k < 4; k++)
        dft4_turned<4 * H, 8 * H, 12 * H>(v[k], v[k + 4], v[k + 8], v[k + 12]);
    dft4_turned<H, 2 * H, 3 * H>(v[0], v[1], v[2], v[3]);
    dft4_turned<2 + H, 4 + 2 * H, 6 + 3 * H>(v[4], v[5], v[6], v[7]);
    dft4_turned<4 + H, 8 + 2 * H, 12 + 3 * H>(v[8], v[9], v[10], v[11]);
    dft4_turned<6 + H, 12 + 2 * H, 18 + 3 * H>(v[12], v[13], v[14], v[15]);
    /* 4 a + b now holds output a + 4 b */
    float2 t[16];
#pragma unroll
    for (int k = 0; k < 16; k++)
        t[k % 4 * 4 + k / 4] = v[k];
#pragma unroll
    for (int k = 0; k < 16; k++)
        v[k] = t[k];
}

static __device__ __forceinline__ void dft6(float2 *v)
{
    dft2(v[0], v[3]);
    dft2(v[1], v[4]);
    dft2(v[2], v[5]);
    v[4] = mul(v[4], make_float2(0.5f, 0.86602540378443865f));
    v[5] = mul(v[5], make_float2(-0.5f, 0.86602540378443865f));
    dft3(v[0], v[1], v[2]);
    dft3(v[3], v[4], v[5]);
    float2 t[6] = {v[0], v[3], v[1], v[4], v[2], v[5]};
#pragma unroll
    for (int k = 0; k < 6; k++)
        v[k] = t[k];
}

static __device__ __forceinline__ void dft10(float2 *v)
{
#pragma unroll
    for (int k = 0; k < 5; k++)
        dft2(v[k], v[k + 5]);
    v[6] = mul(v[6], make_float2(0.80901699437494742f, 0.58778525229247314f));
    v[7] = mul(v[7], make_float2(0.30901699437494745f, 0.95105651629515357f));
    v[8] = mul(v[8], make_float2(-0.30901699437494745f, 0.95105651629515357f));
    v[9] = mul(v[9], make_float2(-0.80901699437494742f, 0.58778525229247314f));
    dft5(v[0], v[1], v[2], v[3], v[4]);
    dft5(v[5], v[6], v[7], v[8], v[9]);
    float2 t[10] = {v[0], v[5], v[1], v[6], v[2], v[7], v[3], v[8], v[4], v[9]};
#pragma unroll
    for (int k = 0; k < 10; k++)
        v[k] = t[k];
}

template <int R> static __device__ __forceinline__ void dft(float2 *v)
{
    static_assert((R >= 1 && R <= 10) || R == 12 || R == 16, "radix");
    if (R == 2)
        dft2(v[0], v[1]);
    if (R == 3)
        dft3(v[0], v[1], v[2]);
    if (R == 4)
        dft4(v[0], v[1], v[2], v[3]);
    if (R == 5)
        dft5(v[0], v[1], v[2], v[3], v[4]);
    if (R == 6)
        dft6(v);
    if (R == 7)
        dft7(v);
    if (R == 8)
        dft8(v);
    if (R == 9)
        dft9(v);
    if (R == 12)
        dft12(v);
    if (R == 16)
        dft16<0>(v);
    if (R == 10)
        dft10(v);
}

#endif

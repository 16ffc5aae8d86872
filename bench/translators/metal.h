/* Types, address spaces and functions of Metal's language, for a C++ compiler that checks syntax and types only.

   Vectors are vectors of clang. `metal.py` replaces constructors by `check::construct<T>`, because C++ has none for them.
   Names that are missing here are errors, so a kernel cannot use what was never checked against Metal's
   specification. */

#define device __attribute__((address_space(1)))
#define constant const __attribute__((address_space(2)))
#define threadgroup __attribute__((address_space(3)))
#define thread
#define kernel
typedef long double long_double;
#define double there_is_no_double
#define static_cast check::construct

typedef _Float16 half;
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned long size_t;

namespace check {
template <class T, int N> struct vector_of {
    typedef T type __attribute__((ext_vector_type(N)));
};
template <class T> struct vector_of<T, 1> {
    typedef T type;
};
template <class T, int N> using vec = typename vector_of<T, N>::type;

/* The element and the number of elements of a type. */
template <class T> struct shape {
    typedef T element;
    static constexpr int count = 1;
};
template <class T> struct vector_shape {
    typedef T element;
};
#define SHAPES(T)                                                                                                    \
    template <> struct shape<vec<T, 2>> { typedef T element; static constexpr int count = 2; };                      \
    template <> struct shape<vec<T, 3>> { typedef T element; static constexpr int count = 3; };                      \
    template <> struct shape<vec<T, 4>> { typedef T element; static constexpr int count = 4; };
SHAPES(float) SHAPES(half) SHAPES(int) SHAPES(unsigned) SHAPES(char) SHAPES(uchar) SHAPES(short) SHAPES(ushort)
SHAPES(signed char)

template <class T> using element = typename shape<T>::element;
template <class T> using like_int = vec<int, shape<T>::count>;
template <class T> using like_mask = decltype(T() == T());

template <bool Condition, class T = void> struct enable {};
template <class T> struct enable<true, T> { typedef T type; };
template <class T> struct is_float { static constexpr bool value = element<T>(0.5) != element<T>(0); };
template <class T> using for_float = typename enable<is_float<T>::value, T>::type;
template <class T> using for_integer = typename enable<!is_float<T>::value, T>::type;
template <class T> using for_vector = typename enable<(shape<T>::count > 1), T>::type;

/* Constructors and static_cast: of a scalar, a vector of the same length, or parts that fill the vector. */
template <class... Parts> struct total { static constexpr int count = 0; };
template <class First, class... Rest> struct total<First, Rest...> {
    static constexpr int count = shape<First>::count + total<Rest...>::count;
};
template <class T, class From, bool Same> struct converted;
template <class T, class From> struct converted<T, From, true> {
    static T of(From value) { return __builtin_convertvector(value, T); }
};
template <class T, class From> struct converted<T, From, false> {
    static_assert(shape<From>::count == 1, "a vector is made of a vector of another length");
    static T of(From value) { return T((element<T>)value); }
};
template <class T, class From> T construct(From value) {
    return converted<T, From, (shape<T>::count > 1 && shape<T>::count == shape<From>::count)>::of(value);
}
template <class T, class First, class Second, class... Rest> T construct(First, Second, Rest...) {
    static_assert(total<First, Second, Rest...>::count == shape<T>::count, "the parts do not fill the vector");
    return T{};
}
} // namespace check

template <class T, class From> T as_type(From value) { return __builtin_bit_cast(T, value); }

typedef unsigned int uint;
#define VECTORS(T, name)                                                                                             \
    typedef check::vec<T, 2> name##2;                                                                                \
    typedef check::vec<T, 3> name##3;                                                                                \
    typedef check::vec<T, 4> name##4;
VECTORS(float, float)
VECTORS(half, half)
VECTORS(int, int)
VECTORS(unsigned, uint)
VECTORS(short, short)
VECTORS(ushort, ushort)
VECTORS(int, bool)
half operator""h(long_double);
typedef signed char packed_char4 __attribute__((ext_vector_type(4)));
typedef uchar packed_uchar4 __attribute__((ext_vector_type(4)));

namespace metal {
using namespace check;
using ::uint;
using ::half;
using ::float2; using ::float3; using ::float4; using ::half2; using ::half3; using ::half4; using ::int2; using
::int3; using ::int4; using ::uint2; using ::uint3; using ::uint4; using ::short2; using ::short3; using ::short4;
using ::ushort2; using ::ushort3; using ::ushort4; using ::bool2; using ::bool3; using ::bool4;

enum class mem_flags { mem_none, mem_device, mem_threadgroup };
constexpr mem_flags operator|(mem_flags a, mem_flags) { return a; }
enum memory_order { memory_order_relaxed };
void threadgroup_barrier(mem_flags);
void simdgroup_barrier(mem_flags);

#define UNARY(name, kind) template <class T> kind<T> name(T);
#define BINARY(name, kind) template <class T> kind<T> name(T, T);
#define TERNARY(name, kind) template <class T> kind<T> name(T, T, T);
template <class T> using any_type = T;
template <class T> using scalar = element<for_float<T>>;
UNARY(abs, any_type) UNARY(sign, for_float) UNARY(floor, for_float) UNARY(ceil, for_float) UNARY(rint, for_float)
UNARY(round, for_float) UNARY(trunc, for_float) UNARY(fract, for_float) UNARY(sqrt, for_float)
UNARY(rsqrt, for_float) UNARY(exp, for_float) UNARY(exp2, for_float) UNARY(log, for_float) UNARY(log2, for_float)
UNARY(sin, for_float) UNARY(cos, for_float) UNARY(tan, for_float) UNARY(asin, for_float) UNARY(acos, for_float)
UNARY(atan, for_float) UNARY(sinh, for_float) UNARY(cosh, for_float) UNARY(tanh, for_float)
UNARY(asinh, for_float) UNARY(acosh, for_float) UNARY(atanh, for_float) UNARY(saturate, for_float)
UNARY(popcount, for_integer) UNARY(ctz, for_integer) UNARY(clz, for_integer) UNARY(reverse_bits, for_integer)
UNARY(length, scalar)
BINARY(min, any_type) BINARY(max, any_type) BINARY(pow, for_float) BINARY(atan2, for_float) BINARY(fmod, for_float)
BINARY(step, for_float) BINARY(dot, scalar)
template <class T> for_vector<T> clamp(T, element<T>, element<T>); // scalars become vectors
TERNARY(clamp, any_type) TERNARY(fma, for_float) TERNARY(mix, for_float)
template <class T> T extract_bits(T, uint, uint);
template <class T> T insert_bits(T, T, uint, uint);
template <class T> for_float<T> ldexp(T, like_int<T>);
template <class T> for_float<T> select(T, T, bool);
template <class T> T select(T, T, bool, for_integer<T> = T());
template <class T> for_vector<T> select(T, decltype(T()), like_mask<T>); // a scalar becomes a vector
template <class T> bool all(T);
template <class T> bool any(T);
template <class T> like_mask<T> isnan(T);
template <class T> like_mask<T> isinf(T);

float4 unpack_snorm4x8_to_float(uint);
float4 unpack_unorm4x8_to_float(uint);
float2 unpack_snorm2x16_to_float(uint);
float2 unpack_unorm2x16_to_float(uint);
uint pack_float_to_snorm4x8(float4);
uint pack_float_to_unorm4x8(float4);
uint pack_float_to_snorm2x16(float2);
uint pack_float_to_unorm2x16(float2);

#define GROUP(name) template <class T> T name(T);
#define LANE(name) template <class T> T name(T, ushort);
GROUP(simd_sum) GROUP(simd_product) GROUP(simd_min) GROUP(simd_max) GROUP(simd_prefix_exclusive_sum)
GROUP(simd_prefix_inclusive_sum) GROUP(simd_and) GROUP(simd_or) GROUP(simd_xor) GROUP(simd_broadcast_first)
LANE(simd_broadcast) LANE(simd_shuffle) LANE(simd_shuffle_xor) LANE(simd_shuffle_up) LANE(simd_shuffle_down)
LANE(quad_broadcast) LANE(quad_shuffle_xor)
bool simd_all(bool);
bool simd_any(bool);

/* Atomics are in the memory of a device or of a threadgroup. They cannot be read or written without a function. */
template <class T> struct atomic {
    T hidden;
    atomic() = default;
    atomic(const atomic &) = delete;
};
typedef atomic<uint> atomic_uint;
typedef atomic<int> atomic_int;
#define ATOMICS(space)                                                                                               \
    template <class T> void atomic_store_explicit(volatile space atomic<T> *, decltype(T()), memory_order);          \
    template <class T> T atomic_load_explicit(const volatile space atomic<T> *, memory_order);                       \
    MODIFY(exchange, space) MODIFY(fetch_add, space) MODIFY(fetch_sub, space) MODIFY(fetch_or, space)                \
    MODIFY(fetch_and, space) MODIFY(fetch_xor, space) MODIFY(fetch_min, space) MODIFY(fetch_max, space)
#define MODIFY(name, space)                                                                                          \
    template <class T> T atomic_##name##_explicit(volatile space atomic<T> *, decltype(T()), memory_order);
ATOMICS(device)
ATOMICS(threadgroup)
} // namespace metal

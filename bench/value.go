package main

import (
	"math"
	"strconv"
)

// A value is what a point carries: mantissa / 10^decimals, or, when decimals is
// fullDouble, the double with the mantissa's bits.
type value struct {
	mantissa int64
	decimals int8
}

const fullDouble = -1

var powersOfTen = [...]int64{1, 10, 100, 1_000, 10_000, 100_000, 1_000_000}

// float is the double nearest to v.
func (v value) float() float64 {
	if v.decimals == fullDouble {
		return math.Float64frombits(uint64(v.mantissa))
	}
	return float64(v.mantissa) / float64(powersOfTen[v.decimals])
}

// appendTo appends v as text, with all its decimals.
func (v value) appendTo(dst []byte) []byte {
	if v.decimals == fullDouble {
		return strconv.AppendFloat(dst, v.float(), 'g', -1, 64)
	}
	m := v.mantissa
	if m < 0 {
		dst, m = append(dst, '-'), -m
	}
	power := powersOfTen[v.decimals]
	dst = strconv.AppendInt(dst, m/power, 10)
	if power == 1 {
		return dst
	}
	dst = append(dst, '.')
	for rest := m % power; power > 1; rest %= power {
		power /= 10
		dst = append(dst, byte('0'+rest/power))
	}
	return dst
}

// mix is a random number that depends only on the series and the step, so that
// a workload is the same over any number of connections. It is the finalizer of
// splitmix64.
func mix(series, step int) uint64 {
	x := uint64(series)<<32 ^ uint64(step)*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// A shape computes the next value of a series. state is the previous mantissa,
// at first a random number from 0 to 9,999; random is new for each point.
type shape func(metric int, state int64, random uint64) value

// devops has, for each host, ten random walks with two decimals, seven growing
// counters and three constants.
func devops(metric int, state int64, random uint64) value {
	switch {
	case metric < 10:
		return value{state + int64(random%201) - 100, 2}
	case metric < 17:
		return value{state + int64(random%1000), 0}
	}
	return value{state, 0}
}

func integers(_ int, state int64, random uint64) value {
	return value{state + int64(random%4001) - 2000, 0}
}

// doubles have full entropy: no decimal text of less than about 16 digits.
func doubles(_ int, _ int64, random uint64) value {
	return value{int64(math.Float64bits(float64(random>>11) / (1 << 53) * 1000)), fullDouble}
}

// noisy is a constant level with noise in all of its 3 to 6 decimals.
func noisy(metric int, state int64, random uint64) value {
	decimals := 3 + metric%4
	level := 40 * powersOfTen[decimals]
	noise := int64(random % uint64(2*powersOfTen[decimals]))
	return value{level + noise + state%7, int8(decimals)}
}

func constant(metric int, _ int64, _ uint64) value { return value{int64(metric), 0} }

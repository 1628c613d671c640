package function

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Names and tags hold numbers in the forms of Python, in which they were
// written first.

// text prints a value as it appears in tags.
func text(v any) string {
	switch x := v.(type) {
	case nil:
		return "None"
	case bool:
		if x {
			return "True"
		}
		return "False"
	case int:
		return strconv.Itoa(x)
	case int64:
		return strconv.FormatInt(x, 10)
	case float64:
		return FormatFloat(x)
	case string:
		return x
	}
	return fmt.Sprint(v)
}

// FormatFloat prints the shortest text that reads as f again, with a fraction
// even if that is zero: 2.0, 1e+16, inf. Null is None.
func FormatFloat(f float64) string { return string(AppendFloat(nil, f)) }

// AppendFloat appends what FormatFloat returns.
func AppendFloat(out []byte, f float64) []byte {
	switch {
	case isNull(f):
		return append(out, "None"...)
	case math.IsInf(f, 1):
		return append(out, "inf"...)
	case math.IsInf(f, -1):
		return append(out, "-inf"...)
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.AppendFloat(out, f, 'e', -1, 64)
	}
	before := len(out)
	out = strconv.AppendFloat(out, f, 'f', -1, 64)
	for _, c := range out[before:] {
		if c == '.' {
			return out
		}
	}
	return append(out, ".0"...)
}

// general prints six digits at most, as %g does.
func general(f float64) string {
	switch {
	case isNull(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	return strconv.FormatFloat(f, 'g', 6, 64)
}

// whole prints a number without its fraction, as %d does.
func whole(f float64) string {
	return strconv.FormatFloat(math.Trunc(f)+0, 'f', 0, 64)
}

// round rounds to a number of decimals, which may be negative, the exact value
// deciding ties.
func round(v float64, decimals int64) float64 {
	if isNull(v) || math.IsInf(v, 0) || v == 0 || decimals > 330 {
		return v
	}
	if decimals >= 0 {
		out, err := strconv.ParseFloat(strconv.FormatFloat(v, 'f', int(decimals), 64), 64)
		if err != nil {
			return v
		}
		return out
	}
	if decimals < -330 {
		return math.Copysign(0, v)
	}
	exponent := int64(math.Floor(math.Log10(math.Abs(v))))
	digits := exponent + decimals // behind the first one
	if digits < -1 {
		return math.Copysign(0, v)
	}
	if digits == -1 {
		unit := math.Pow(10, float64(-decimals))
		if math.Abs(v) > unit/2 {
			return math.Copysign(unit, v)
		}
		return math.Copysign(0, v)
	}
	out, err := strconv.ParseFloat(strconv.FormatFloat(v, 'e', int(digits), 64), 64)
	if err != nil {
		return v
	}
	return out
}

// scaled divides a number by the largest unit of a system that is not above
// it, and returns the unit's prefix.
func scaled(v float64, system string) (float64, string) {
	base := 1000.0
	prefixes := [...]string{"P", "T", "G", "M", "k"}
	if system == "binary" {
		base, prefixes = 1024, [...]string{"Pi", "Ti", "Gi", "Mi", "Ki"}
	}
	prefix := ""
	out := v
	for i, p := range prefixes {
		if size := math.Pow(base, float64(5-i)); math.Abs(v) >= size {
			out, prefix = v/size, p
			break
		}
	}
	if out-math.Floor(out) < 1e-11 && v > 1 {
		out = math.Floor(out)
	}
	return out, prefix
}

// pad fills a text with blanks to a number of characters.
func pad(s string, width int) string {
	if n := width - len([]rune(s)); n > 0 {
		return s + strings.Repeat(" ", n)
	}
	return s
}

// maxWidth bounds width and precision in a format that a client sends.
const maxWidth = 400

// format prints a number by a text with one conversion of printf's kind.
func format(layout string, v float64) (string, error) {
	var out strings.Builder
	done := false
	for i := 0; i < len(layout); i++ {
		if layout[i] != '%' {
			out.WriteByte(layout[i])
			continue
		}
		start := i
		for i++; i < len(layout) && strings.IndexByte("#0- +.123456789", layout[i]) >= 0; i++ {
		}
		if i >= len(layout) {
			return "", badParam("the name %.64q has an incomplete format", layout)
		}
		if layout[i] == '%' {
			out.WriteByte('%')
			continue
		}
		if done {
			return "", badParam("the name %.64q has more than one format", layout)
		}
		done = true
		s, err := convert(layout[start+1:i], layout[i], v)
		if err != nil {
			return "", err
		}
		out.WriteString(s)
	}
	if !done {
		return "", badParam("the name %.64q has no format for the value, such as %%g", layout)
	}
	return out.String(), nil
}

// convert prints a number by flags, width and precision.
func convert(flags string, verb byte, v float64) (string, error) {
	for _, field := range strings.FieldsFunc(flags, func(r rune) bool { return r < '0' || r > '9' }) {
		if n, err := strconv.Atoi(field); err != nil || n > maxWidth {
			return "", badParam("a format is wider than %d", maxWidth)
		}
	}
	switch verb {
	case 'd', 'i', 'u':
		if flags == "" {
			return whole(v), nil
		}
		return fmt.Sprintf("%"+flags+"d", int64(v)), nil
	case 'f', 'F', 'e', 'E':
		return fmt.Sprintf("%"+flags+string(verb), v), nil
	case 'g', 'G':
		if flags == "" {
			return general(v), nil
		}
		if !strings.Contains(flags, ".") {
			flags += ".6"
		}
		return fmt.Sprintf("%"+flags+string(verb), v), nil
	case 's', 'r':
		return fmt.Sprintf("%"+flags+"s", FormatFloat(v)), nil
	}
	return "", badParam("a name has the format %%%c: use %%d, %%f, %%g or %%s", verb)
}

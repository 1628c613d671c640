package pytext

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Text formats a value as in tags.
func Text(v any) string {
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

// FormatFloat returns the shortest text that parses as f, with a fraction even if
// that is zero: 2.0, 1e+16, inf. NaN, which is null, is None.
func FormatFloat(f float64) string { return string(AppendFloat(nil, f)) }

// AppendFloat appends the result of FormatFloat.
func AppendFloat(out []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
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
	if bytes.IndexByte(out[before:], '.') >= 0 {
		return out
	}
	return append(out, ".0"...)
}

// General formats a number with at most six digits, as %g does.
func General(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	return strconv.FormatFloat(f, 'g', 6, 64)
}

// Whole formats a number without its fraction, as %d does.
func Whole(f float64) string {
	return strconv.FormatFloat(math.Trunc(f)+0, 'f', 0, 64)
}

// maxWidth limits width and precision in a client's format.
const maxWidth = 400

// Format formats a number by a printf format, which must have exactly one conversion.
func Format(layout string, v float64) (string, error) {
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
			return "", fmt.Errorf("the name %.64q has an incomplete format", layout)
		}
		if layout[i] == '%' {
			out.WriteByte('%')
			continue
		}
		if done {
			return "", fmt.Errorf("the name %.64q has more than one format", layout)
		}
		done = true
		s, err := convert(layout[start+1:i], layout[i], v)
		if err != nil {
			return "", err
		}
		out.WriteString(s)
	}
	if !done {
		return "", fmt.Errorf("the name %.64q has no format for the value, such as %%g", layout)
	}
	return out.String(), nil
}

// convert formats a number by one conversion. flags include width and precision.
func convert(flags string, verb byte, v float64) (string, error) {
	for _, field := range strings.FieldsFunc(flags, func(r rune) bool { return r < '0' || r > '9' }) {
		if n, err := strconv.Atoi(field); err != nil || n > maxWidth {
			return "", fmt.Errorf("a format is wider than %d", maxWidth)
		}
	}
	switch verb {
	case 'd', 'i', 'u':
		if flags == "" {
			return Whole(v), nil
		}
		return fmt.Sprintf("%"+flags+"d", int64(v)), nil
	case 'f', 'F', 'e', 'E':
		return fmt.Sprintf("%"+flags+string(verb), v), nil
	case 'g', 'G':
		if flags == "" {
			return General(v), nil
		}
		if !strings.Contains(flags, ".") {
			flags += ".6"
		}
		return fmt.Sprintf("%"+flags+string(verb), v), nil
	case 's', 'r':
		return fmt.Sprintf("%"+flags+"s", FormatFloat(v)), nil
	}
	return "", fmt.Errorf("a name has the unknown format %%%c; use %%d, %%f, %%g or %%s", verb)
}

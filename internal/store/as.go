package store

// As returns v as a T, which is one of the optional abilities of stores and views. A
// value that wraps another says so by a method Unwrap, as errors do; what it does not have
// itself is looked for in what it wraps. So an ability is neither hidden by a wrapper nor
// taken over by one that changes what it does, as embedding would.
func As[T any](v any) (T, bool) {
	for {
		if able, ok := v.(T); ok {
			return able, true
		}
		wrapper, ok := v.(interface{ Unwrap() any })
		if !ok {
			var none T
			return none, false
		}
		v = wrapper.Unwrap()
	}
}

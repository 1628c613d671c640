package store

// As returns v as a T, an optional interface of stores and views. A wrapper has a method
// Unwrap, as wrapped errors do. If v does not implement T, As looks in the value that v
// wraps. So a wrapper hides no optional interface. Embedding would also pass on an interface
// whose behaviour the wrapper changes.
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

//go:build !linux

package doctor

func kindOf(string) (string, bool) { return "", false }

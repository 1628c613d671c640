package ingest

// CutWord splits the first word off b, which is empty if there is none. Words are
// separated by bytes up to and including the blank.
func CutWord(b []byte) (word, rest []byte) {
	i := 0
	for i < len(b) && b[i] <= ' ' {
		i++
	}
	end := i
	for end < len(b) && b[end] > ' ' {
		end++
	}
	return b[i:end], b[end:]
}

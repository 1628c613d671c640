//go:build !unix

package doctor

func limitOfFiles() (uint64, bool) { return 0, false }

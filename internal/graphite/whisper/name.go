package whisper

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// Suffix is the suffix of the files.
const Suffix = ".wsp"

// tagged is the directory of series with tags. In the names of their files, dot replaces
// the dot.
const (
	tagged = "_tagged"
	dot    = "_DOT_"
)

// FileOf returns the file name of a path, with slashes and relative to Graphite's data
// directory: a/b.wsp for a.b. A series with tags is name;tag=value, with tags in order. Its
// file has the whole name or, if hashed, only its hash, as with carbon's
// TAG_HASH_FILENAMES.
func FileOf(path string, hashed bool) (string, error) {
	if strings.ContainsAny(path, "/\x00") {
		return "", fmt.Errorf("the path has a slash, which a file name cannot contain")
	}
	if !strings.Contains(path, ";") {
		if strings.Contains("."+path+".", "..") {
			return "", fmt.Errorf("the path has an empty node")
		}
		file := strings.ReplaceAll(path, ".", "/") + Suffix
		if strings.HasPrefix(file, tagged+"/") {
			return "", fmt.Errorf("the path begins with %s, which is reserved for series with tags", tagged)
		}
		return file, longName(file)
	}
	hash := Hash(path)
	name := hash
	if !hashed {
		name = strings.ReplaceAll(path, ".", dot)
	}
	file := strings.Join([]string{tagged, hash[:3], hash[3:6], name + Suffix}, "/")
	return file, longName(file)
}

// maxName is the largest length of a file or directory name on Linux, in bytes.
const maxName = 255

func longName(file string) error {
	for name := range strings.SplitSeq(file, "/") {
		if len(name) > maxName {
			return fmt.Errorf("the name of a file would have %d bytes, which is more than %d", len(name), maxName)
		}
	}
	return nil
}

// Hash returns the hash that names the file of a series with tags.
func Hash(path string) string {
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:])
}

// PathOf returns the path of a file, whose name has slashes and is relative to Graphite's
// data directory. If the name is only a hash, PathOf returns hash instead of path.
func PathOf(file string) (path, hash string, err error) {
	file = strings.TrimSuffix(file, Suffix)
	nodes := strings.Split(file, "/")
	if nodes[0] != tagged {
		for _, node := range nodes {
			if node == "" || strings.ContainsAny(node, ".;") {
				return "", "", fmt.Errorf("%.100q is not a node of a path", node)
			}
		}
		return strings.Join(nodes, "."), "", nil
	}
	name := nodes[len(nodes)-1]
	if len(nodes) != 4 || len(nodes[1]) != 3 || len(nodes[2]) != 3 {
		return "", "", fmt.Errorf("it is not two directories below %s", tagged)
	}
	if isHash(name) {
		return "", name, nil
	}
	if !strings.Contains(name, ";") {
		return "", "", fmt.Errorf("%.100q is not the name of a series with tags", name)
	}
	return dotted(name, nodes[1]+nodes[2]), "", nil
}

// maxDots limits the number of _DOT_ in a file's name, each of which may be a dot or
// literal text of the path.
const maxDots = 10

// dotted returns the path whose file has this name, and whose hash has this beginning. Each _DOT_
// in name may be a dot or literal text of the path. If no path has the hash, all are dots.
func dotted(name, beginning string) string {
	parts := strings.Split(name, dot)
	all := strings.Join(parts, ".")
	if n := len(parts) - 1; n <= maxDots {
		for texts := range 1 << n { // bit i is set if part i is followed by literal text
			path := parts[0]
			for i, part := range parts[1:] {
				if texts>>i&1 == 0 {
					path += "." + part
				} else {
					path += dot + part
				}
			}
			if strings.HasPrefix(Hash(path), beginning) {
				return path
			}
		}
	}
	return all
}

func isHash(name string) bool {
	return len(name) == hex.EncodedLen(sha256.Size) && strings.Trim(name, "0123456789abcdef") == ""
}

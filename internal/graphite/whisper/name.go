package whisper

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// Suffix is the suffix of the files.
const Suffix = ".wsp"

// tagged is the directory of the series with tags, and dot stands for a dot in their
// files' names.
const (
	tagged = "_tagged"
	dot    = "_DOT_"
)

// FileOf returns the file of a path below the directory of all files, with slashes:
// a.b is in a/b.wsp. The file of a series with tags, name;tag=value with tags in order,
// is called after the whole, or with hashed by its hash alone, as carbon does where
// TAG_HASH_FILENAMES is set.
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

// maxName is how long the name of a file or directory may be on Linux, in bytes.
const maxName = 255

func longName(file string) error {
	for name := range strings.SplitSeq(file, "/") {
		if len(name) > maxName {
			return fmt.Errorf("the name of a file would have %d bytes, which is more than %d", len(name), maxName)
		}
	}
	return nil
}

// Hash is the hash by which the file of a series with tags is named.
func Hash(path string) string {
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:])
}

// PathOf returns the path of a file, which is given below the directory of all files,
// with slashes. hash is set instead if that is all that the name says.
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
	if path = strings.ReplaceAll(name, dot, "."); !strings.Contains(path, ";") {
		return "", "", fmt.Errorf("%.100q is not the name of a series with tags", name)
	}
	return path, "", nil
}

func isHash(name string) bool {
	return len(name) == hex.EncodedLen(sha256.Size) && strings.Trim(name, "0123456789abcdef") == ""
}

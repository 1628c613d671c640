// Command packaging builds the files of a release: archives with binaries for each
// platform, Debian packages, lists of their contents (SBOM, licences), and checksums. It
// needs only Go. The same commit and toolchain give the same bytes.
//
//	go run ./tools/packaging -out dist
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// allTargets are the platforms of the binaries. Platforms with a 32-bit int are missing,
// because Varve's limits and sizes assume 64 bits.
const allTargets = "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64"

// A release has the properties that are common to all files of a build.
type release struct {
	root    string    // of the repository
	out     string    // directory of the files
	version string    // as varve version prints it
	when    time.Time // modification time of all files
	texts   *licences
	built   []string // names of the files written, for the checksums
}

// A target is a platform and its binary.
type target struct {
	os, arch string
	binary   string // path
}

func (t target) String() string { return t.os + "-" + t.arch }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	out := flag.String("out", "dist", "directory for the files")
	version := flag.String("version", "", "version; default: that of git describe")
	targets := flag.String("targets", allTargets, "platforms, separated by commas")
	flag.Parse()
	if err := build(ctx, *out, *version, strings.Split(*targets, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "packaging:", err)
		os.Exit(1)
	}
}

func build(ctx context.Context, out, version string, targets []string) error {
	r, err := newRelease(ctx, out, version)
	if err != nil {
		return err
	}
	for _, name := range targets {
		system, arch, ok := strings.Cut(name, "/")
		if !ok || !slices.Contains(strings.Split(allTargets, ","), name) {
			return fmt.Errorf("target %q: want some of %s", name, allTargets)
		}
		t := target{os: system, arch: arch}
		fmt.Println("building", t)
		if t.binary, err = r.compile(ctx, t); err != nil {
			return err
		}
		if err := r.pack(ctx, t); err != nil {
			return fmt.Errorf("pack %s: %w", t, err)
		}
	}
	return r.writeSums()
}

// newRelease determines the version and time, and creates the directory.
func newRelease(ctx context.Context, out, version string) (*release, error) {
	r := &release{out: out, version: version}
	var err error
	if r.root, err = output(ctx, ".", "go", "list", "-m", "-f", "{{.Dir}}"); err != nil {
		return nil, err
	}
	if r.when, err = sourceTime(ctx, r.root); err != nil {
		return nil, err
	}
	if version == "" {
		if r.version, err = output(ctx, r.root, "git", "describe", "--tags", "--always", "--dirty"); err != nil {
			return nil, fmt.Errorf("%w; -version gives one without git", err)
		}
	}
	return r, os.MkdirAll(out, 0o755)
}

// sourceTime returns the modification time of all files: SOURCE_DATE_EPOCH, else the time
// of the commit.
func sourceTime(ctx context.Context, root string) (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		var err error
		if text, err = output(ctx, root, "git", "log", "-1", "--format=%ct"); err != nil {
			return time.Time{}, fmt.Errorf("%w; SOURCE_DATE_EPOCH gives the time without git", err)
		}
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("time of the sources: %w", err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// output runs a command and returns its output without surrounding white space.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = dir
	text, err := c.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(text)), nil
}

// compile builds the binary of t below out/bin.
func (r *release) compile(ctx context.Context, t target) (string, error) {
	path := filepath.Join(r.out, "bin", t.String(), "varve")
	if t.os == "windows" {
		path += ".exe"
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	c := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags", "-s -w -X main.version="+r.version, "-o", path, "./cmd/varve")
	c.Dir, c.Stderr = r.root, os.Stderr
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+t.os, "GOARCH="+t.arch, "GOAMD64=v1", "GOARM64=v8.0")
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("go build for %s: %w", t, err)
	}
	return path, nil
}

// pack writes the SBOM and the archive of t and, for Linux, the Debian package.
func (r *release) pack(ctx context.Context, t target) error {
	modules, err := modulesOf(t.binary)
	if err != nil {
		return err
	}
	if r.texts, err = readLicences(ctx, r.root, modules.all); err != nil {
		return err
	}
	bill, err := r.bill(t, modules)
	if err != nil {
		return err
	}
	if err := r.write("varve-"+r.version+"-"+t.String()+".cdx.json", bill); err != nil {
		return err
	}
	if err := r.archive(t, bill); err != nil {
		return err
	}
	if t.os != "linux" {
		return nil
	}
	return r.debian(t, bill)
}

// write writes a file of the release.
func (r *release) write(name string, data []byte) error {
	r.built = append(r.built, name)
	return os.WriteFile(filepath.Join(r.out, name), data, 0o644)
}

// writeSums writes SHA256SUMS in the format of sha256sum -c.
func (r *release) writeSums() error {
	var b strings.Builder
	slices.Sort(r.built)
	for _, name := range r.built {
		data, err := os.ReadFile(filepath.Join(r.out, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256(data), name)
	}
	fmt.Print(b.String())
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(b.String()), 0o644)
}

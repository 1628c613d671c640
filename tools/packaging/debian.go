package main

import (
	"bytes"
	"crypto/md5"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// debian writes the Debian package of t.
func (r *release) debian(t target, bill []byte) error {
	c, err := r.debianContent(t, bill)
	if err != nil {
		return err
	}
	version := debianVersion(r.version, r.when)
	control, err := r.debianControl(t, c, version)
	if err != nil {
		return err
	}
	controlTar, err := control.tarGz("./", r.when)
	if err != nil {
		return err
	}
	dataTar, err := c.tarGz("./", r.when)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	b.WriteString("!<arch>\n")
	for _, member := range []struct {
		name string
		data []byte
	}{{"debian-binary", []byte("2.0\n")}, {"control.tar.gz", controlTar}, {"data.tar.gz", dataTar}} {
		fmt.Fprintf(&b, "%-16s%-12d%-6d%-6d%-8s%-10d`\n", member.name, r.when.Unix(), 0, 0, "100644", len(member.data))
		b.Write(member.data)
		if len(member.data)%2 == 1 {
			b.WriteByte('\n')
		}
	}
	return r.write(fmt.Sprintf("varve_%s_%s.deb", version, t.arch), b.Bytes())
}

// debianContent returns the files that the package installs.
func (r *release) debianContent(t target, bill []byte) (content, error) {
	const doc = "usr/share/doc/varve/"
	c := content{doc + "copyright": {r.texts.text(), 0o644}, doc + "sbom.cdx.json": {bill, 0o644}}
	deploy := filepath.Join(r.root, "deploy")
	for name, source := range map[string]string{
		"usr/lib/systemd/system/varve.service": filepath.Join(deploy, "debian/varve.service"),
		"etc/varve/varve.yaml":                 filepath.Join(deploy, "debian/varve.yaml"),
		doc + "README.md":                      filepath.Join(r.root, "README.md"),
		doc + "CHANGELOG.md":                   filepath.Join(r.root, "CHANGELOG.md"),
	} {
		if err := c.add(name, source, 0o644); err != nil {
			return nil, err
		}
	}
	for name, source := range map[string]string{
		doc + "docs":                 filepath.Join(r.root, "docs"), // as in the repository, so that links work
		"usr/share/varve/grafana":    filepath.Join(deploy, "grafana"),
		"usr/share/varve/prometheus": filepath.Join(deploy, "prometheus"),
	} {
		if err := c.addTree(name, source); err != nil {
			return nil, err
		}
	}
	return c, c.add("usr/bin/varve", t.binary, 0o755)
}

// debianControl returns the metadata and maintainer scripts of the package.
func (r *release) debianControl(t target, c content, version string) (content, error) {
	kib := 0
	var sums strings.Builder
	for _, name := range c.names() {
		kib += (len(c[name].data) + 1023) / 1024
		if !strings.HasPrefix(name, "etc/") {
			fmt.Fprintf(&sums, "%x  %s\n", md5.Sum(c[name].data), name)
		}
	}
	text := fmt.Sprintf(`Package: varve
Version: %s
Architecture: %s
Maintainer: The Varve maintainers <maintainers@varve.invalid>
Installed-Size: %d
Depends: init-system-helpers (>= 1.54~), passwd
Section: database
Priority: optional
Description: time series database
 Varve takes points from collectors (telnet put lines, KairosDB JSON, OpenTSDB
 JSON, Graphite's carbon), keeps them on its own disk store or in Cassandra, and
 answers queries of KairosDB and Graphite.
`, version, t.arch, kib)
	control := content{
		"control":   {[]byte(text), 0o644},
		"conffiles": {[]byte("/etc/varve/varve.yaml\n"), 0o644},
		"md5sums":   {[]byte(sums.String()), 0o644},
	}
	for _, script := range []string{"postinst", "prerm", "postrm"} {
		if err := control.add(script, filepath.Join(r.root, "deploy/debian", script), 0o755); err != nil {
			return nil, err
		}
	}
	return control, nil
}

// described matches the output of git describe after a tag: v1.2.3 or v1.2.3-4-gabcdef,
// and either with -dirty.
var described = regexp.MustCompile(`^v?(\d[0-9A-Za-z.~]*)(?:-(\d+)-g([0-9a-f]+))?(-dirty)?$`)

// commit matches the output of git describe before the first tag.
var commit = regexp.MustCompile(`^([0-9a-f]{7,40})(-dirty)?$`)

// debianVersion turns a version into one that dpkg sorts as git does: commits after a
// tag come after it, those before the first tag by time and before every release.
func debianVersion(version string, when time.Time) string {
	changed := func(suffix string) string {
		if suffix != "" {
			return "+changed"
		}
		return ""
	}
	if m := commit.FindStringSubmatch(version); m != nil {
		return "0~" + when.Format("20060102150405") + "." + m[1] + changed(m[2])
	}
	if m := described.FindStringSubmatch(version); m != nil {
		text := m[1]
		if m[2] != "" {
			text += "+" + m[2] + "." + m[3]
		}
		return text + changed(m[4])
	}
	clean := regexp.MustCompile(`[^0-9A-Za-z.+~]+`).ReplaceAllString(version, ".")
	return "0~" + when.Format("20060102150405") + "." + clean
}

package main

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// modules is the modules of a binary, as its linker recorded them.
type modules struct {
	goVersion string
	all       []module // without Varve itself
}

type module struct {
	Path, Version string
	Sum           string // h1: of go.sum
}

// modulesOf reads the modules of a binary.
func modulesOf(binary string) (modules, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return modules{}, err
	}
	m := modules{goVersion: info.GoVersion}
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			dep = dep.Replace
		}
		m.all = append(m.all, module{dep.Path, dep.Version, dep.Sum})
	}
	if len(m.all) == 0 {
		return modules{}, fmt.Errorf("%s: the linker has recorded no modules", binary)
	}
	return m, nil
}

// The parts of CycloneDX 1.5 that are used: https://cyclonedx.org/docs/1.5/json/.
type (
	bom struct {
		Format      string       `json:"bomFormat"`
		SpecVersion string       `json:"specVersion"`
		Version     int          `json:"version"`
		Metadata    bomMetadata  `json:"metadata"`
		Components  []component  `json:"components"`
		Depends     []dependency `json:"dependencies"`
	}
	bomMetadata struct {
		Timestamp string    `json:"timestamp"`
		Component component `json:"component"`
	}
	component struct {
		Type       string     `json:"type"`
		Ref        string     `json:"bom-ref"`
		Name       string     `json:"name"`
		Version    string     `json:"version"`
		PURL       string     `json:"purl,omitempty"`
		Licences   []licensed `json:"licenses,omitempty"`
		Properties []property `json:"properties,omitempty"`
	}
	licensed struct {
		Expression string `json:"expression"`
	}
	property struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	dependency struct {
		Ref       string   `json:"ref"`
		DependsOn []string `json:"dependsOn,omitempty"`
	}
)

// bill renders the software bill of materials of t's binary, as CycloneDX JSON. The modules
// come from the linker, so they cannot differ from those in the binary.
func (r *release) bill(t target, m modules) ([]byte, error) {
	main := component{Type: "application", Ref: "varve", Name: "varve", Version: r.version,
		Licences:   ofLicence("Apache-2.0"),
		Properties: []property{{"go:os", t.os}, {"go:arch", t.arch}}}
	b := bom{Format: "CycloneDX", SpecVersion: "1.5", Version: 1,
		Metadata: bomMetadata{Timestamp: r.when.Format(time.RFC3339), Component: main}}
	standard := strings.TrimPrefix(m.goVersion, "go")
	b.Components = []component{{Type: "library", Ref: "pkg:golang/std@" + standard, Name: "std", Version: standard,
		PURL: "pkg:golang/std@" + standard, Licences: ofLicence("BSD-3-Clause")}}
	for _, dep := range m.all {
		purl := fmt.Sprintf("pkg:golang/%s@%s", strings.ToLower(dep.Path), url.PathEscape(dep.Version))
		c := component{Type: "library", Ref: purl, Name: dep.Path, Version: dep.Version, PURL: purl}
		if id := r.texts.id(dep.Path); id != "" {
			c.Licences = ofLicence(id)
		}
		if dep.Sum != "" {
			c.Properties = []property{{"go:sum", dep.Sum}}
		}
		b.Components = append(b.Components, c)
	}
	depends := dependency{Ref: main.Ref}
	for _, c := range b.Components {
		depends.DependsOn = append(depends.DependsOn, c.Ref)
	}
	b.Depends = []dependency{depends}
	text, err := json.MarshalIndent(b, "", "  ")
	return append(text, '\n'), err
}

func ofLicence(expression string) []licensed { return []licensed{{expression}} }

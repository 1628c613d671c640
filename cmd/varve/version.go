package main

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"

	"varve/internal/config"
)

// version is set by the linker in a release: -ldflags "-X main.version=1.2.3".
var version string

// versionText returns the version: the linker's, else the module's, else the
// commit that the toolchain has recorded, else "dev". It never fails.
func versionText() string {
	info, ok := debug.ReadBuildInfo()
	switch {
	case version != "":
		return version
	case !ok:
		return "dev"
	case info.Main.Version != "" && info.Main.Version != "(devel)":
		return info.Main.Version
	}
	text := "dev"
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			text += "-" + s.Value[:min(12, len(s.Value))]
		}
		if s.Key == "vcs.modified" && s.Value == "true" {
			text += "-changed"
		}
	}
	return text
}

func printVersion(t terminal, args []string) error {
	if wantsHelp(args) {
		return config.ErrHelp
	}
	if len(args) > 0 {
		return &usageError{errors.New("version takes no arguments")}
	}
	_, err := fmt.Fprintf(t.stdout, "varve %s (%s, %s/%s)\n", versionText(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

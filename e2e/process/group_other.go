//go:build !unix

package process

import "os/exec"

// killGroup does nothing here: cancellation kills c only.
func killGroup(*exec.Cmd) {}

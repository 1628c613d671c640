//go:build unix

package process

import (
	"os/exec"
	"syscall"
)

// killGroup makes c the head of a process group, and its cancellation kill the
// whole group.
func killGroup(c *exec.Cmd) {
	if c.SysProcAttr == nil {
		c.SysProcAttr = &syscall.SysProcAttr{}
	}
	c.SysProcAttr.Setpgid = true
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
}

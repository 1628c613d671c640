//go:build unix

package process

import (
	"os/exec"
	"syscall"
)

// killGroup makes c the leader of a process group. If c is cancelled, the whole
// group is killed.
func killGroup(c *exec.Cmd) {
	if c.SysProcAttr == nil {
		c.SysProcAttr = &syscall.SysProcAttr{}
	}
	c.SysProcAttr.Setpgid = true
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
}

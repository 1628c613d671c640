package e2e

import (
	"os/exec"
	"syscall"
)

// endWithTest makes the kernel kill c should the test process end without
// cleaning up, for example at its time limit.
func endWithTest(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

package process

import (
	"os/exec"
	"syscall"
)

// EndWithTest makes the kernel kill c should the test process end without
// cleaning up, for example at its time limit.
func EndWithTest(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

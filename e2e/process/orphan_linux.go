package process

import (
	"os/exec"
	"syscall"
)

// EndWithTest makes the kernel kill c if the test process ends without cleaning
// up, for example at its time limit.
func EndWithTest(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

package doctor

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"syscall"

	"varve/internal/config"
	"varve/internal/server"
)

// ports tries to listen at the addresses of the server. running says that a server holds
// the data directory.
func ports(c config.Config, running bool) (found []Finding) {
	for _, a := range c.Server.Addresses() {
		if a.Addr != "" {
			found = append(found, judgePort(a, running, tryListening(a.Network, a.Addr)))
		}
	}
	return found
}

func tryListening(network, addr string) error {
	if network == "udp" {
		l, err := net.ListenPacket(network, addr)
		if err == nil {
			err = l.Close()
		}
		return err
	}
	l, err := net.Listen(network, addr)
	if err == nil {
		err = l.Close()
	}
	return err
}

// judgePort turns the result of listening at an address into a finding.
func judgePort(a server.Address, running bool, err error) Finding {
	const check = "ports"
	key, addr := "server."+a.Key, a.Addr
	taken := errors.Is(err, syscall.EADDRINUSE) || runtime.GOOS == "windows" && err != nil
	switch {
	case err == nil && running:
		return Finding{check, Warning, fmt.Sprintf("%s: no program listens at %s, although a server holds the data directory", key, addr), "the server runs with other settings, or could not open the port: see its log"}
	case err == nil:
		return ok(check, "%s: %s is free", key, addr)
	case taken && running:
		return ok(check, "%s: %s is in use, and a server holds the data directory", key, addr)
	case taken && a.Optional:
		return Finding{check, Warning, fmt.Sprintf("%s: another program listens at %s, perhaps carbon; the server starts without it", key, addr), "stop that program, or set " + key + " to another address, or to an empty one"}
	case taken:
		return Finding{check, Fault, fmt.Sprintf("%s: another program listens at %s", key, addr), "stop it (ss -ltnup shows it), or change " + key}
	case errors.Is(err, syscall.EACCES):
		return Finding{check, Fault, fmt.Sprintf("%s: %v", key, err), "choose a port from 1024 on, or give the server CAP_NET_BIND_SERVICE"}
	}
	return Finding{check, Fault, fmt.Sprintf("%s: %v", key, err), "name an address of this machine"}
}

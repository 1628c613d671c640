package doctor

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"syscall"

	"varve/internal/config"
)

// ports tries to listen where the server will. running says that a server holds the data
// directory.
func ports(c config.Config, running bool) (found []Finding) {
	for _, p := range []struct{ key, addr, network string }{
		{"server.http_addr", c.Server.HTTPAddr, "tcp"},
		{"server.telnet_addr", c.Server.TelnetAddr, "tcp"},
		{"server.carbon_addr", c.Server.CarbonAddr, "tcp"},
		{"server.pickle_addr", c.Server.PickleAddr, "tcp"},
		{"server.carbon_udp_addr", c.Server.CarbonUDPAddr, "udp"},
		{"server.pprof_addr", c.Server.PprofAddr, "tcp"},
	} {
		if p.addr != "" {
			found = append(found, judgePort(p.key, p.addr, running, tryListening(p.network, p.addr)))
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

// standard has the addresses that a server does without if they are taken.
var standard = config.Default().Server

// judgePort says what it means that addr is free, or in use.
func judgePort(key, addr string, running bool, err error) Finding {
	const check = "ports"
	taken := errors.Is(err, syscall.EADDRINUSE) || runtime.GOOS == "windows" && err != nil
	switch {
	case err == nil && running:
		return Finding{check, Warning, fmt.Sprintf("%s: no program listens at %s, although a server holds the data directory", key, addr), "the server has other settings than these, or could not take the port; its log says which"}
	case err == nil:
		return ok(check, "%s: %s is free", key, addr)
	case taken && running:
		return ok(check, "%s: %s is in use, and a server holds the data directory", key, addr)
	case taken && (addr == standard.CarbonAddr || addr == standard.PickleAddr):
		return Finding{check, Warning, fmt.Sprintf("%s: another program listens at %s, perhaps carbon; the server starts without it", key, addr), "stop that program, or set " + key + " to another address, or leave it empty"}
	case taken:
		return Finding{check, Fault, fmt.Sprintf("%s: another program listens at %s", key, addr), "stop it (ss -ltnup shows it), or change " + key}
	case errors.Is(err, syscall.EACCES):
		return Finding{check, Fault, fmt.Sprintf("%s: %v", key, err), "choose a port from 1024 on, or give the server CAP_NET_BIND_SERVICE"}
	}
	return Finding{check, Fault, fmt.Sprintf("%s: %v", key, err), "name an address of this machine"}
}

package main

import (
	"log/slog"
	"net"
	"os"
)

// A manager is the socket to which a service manager wants the server's state reported, "" if there
// is none. systemd sets NOTIFY_SOCKET for units of Type=notify; see sd_notify(3).
type manager string

func serviceManager() manager { return manager(os.Getenv("NOTIFY_SOCKET")) }

// States that a manager is told.
const (
	managerReady     = "READY=1"
	managerReloading = "RELOADING=1"
	managerStopping  = "STOPPING=1"
)

// tell tells the manager the state of the server.
func (m manager) tell(state string, log *slog.Logger) {
	if m == "" {
		return
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: string(m), Net: "unixgram"})
	if err == nil {
		defer c.Close()
		_, err = c.Write([]byte(state))
	}
	if err != nil {
		log.Warn("cannot report the state of the server to the service manager, which may consider the start failed", "state", state, "socket", string(m), "error", err)
	}
}

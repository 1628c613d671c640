package doctor

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/auth"
	"varve/internal/config"
	"varve/internal/embedded/datadir"
	"varve/internal/machine"
	"varve/internal/principal"
	"varve/internal/server"
)

// wants checks the grade and text of a finding, and that it says what to do unless it is OK.
func wants(t *testing.T, f Finding, grade Grade, text string) {
	t.Helper()
	if f.Grade != grade || !strings.Contains(f.Text, text) || (f.Do == "") != (f.Grade == OK) {
		t.Errorf("%+v, want %s and %q", f, grade, text)
	}
}

func TestOpenFiles(t *testing.T) {
	limit := func(n uint64) func() (uint64, bool) { return func() (uint64, bool) { return n, true } }
	c := config.Default()
	wants(t, openFiles(c, limit(65536)), OK, "at most 65536, 11192 may be needed")
	wants(t, openFiles(c, limit(4096)), Warning, "may need 11192")
	wants(t, openFiles(c, limit(256)), Fault, "at most 256")
	wants(t, openFiles(c, func() (uint64, bool) { return 0, false }), OK, "not known")
	if n, known := machine.Files(); known && n < 3 {
		t.Errorf("the limit of open files is %d", n)
	}
}

// Listeners that the server would refuse to open are faults.
func TestExposed(t *testing.T) {
	c := config.Default()
	c.Server.TelnetAddr, c.Server.PickleAddr = "", "[::1]:2004"
	if found := security(c); len(found) > 0 {
		t.Errorf("on loopback: %+v", found)
	}
	c.Server.HTTPAddr, c.Server.CarbonAddr, c.Server.CarbonUDPAddr = "127.0.0.2:8080", "0.0.0.0:2003", ":2003"
	found := security(c)
	if len(found) != 2 {
		t.Fatalf("%+v, want 2 findings", found)
	}
	wants(t, found[0], Fault, "server.carbon_addr: other machines can reach 0.0.0.0:2003")
	wants(t, found[1], Fault, "server.carbon_udp_addr: other machines can reach :2003")
	insecure, asks := c, c
	insecure.Server.Insecure, asks.Auth.Enabled = true, true
	if found := security(asks); len(found) > 0 {
		t.Errorf("with authentication: %+v", found)
	}
	if found := security(insecure); len(found) != 1 {
		t.Errorf("insecure: %+v", found)
	} else {
		wants(t, found[0], Warning, "server.insecure is set")
	}
}

// TestDefaultsFit: on small machines too, what the defaults allow leaves a fifth of the memory for garbage.
func TestDefaultsFit(t *testing.T) {
	all := machine.Memory()
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	for _, size := range []int64{512 << 20, 700 << 20, 1 << 30, 3 << 30, 4 << 30, 16 << 30} {
		if size > all {
			t.Logf("this machine has less than %d bytes", size)
			continue
		}
		debug.SetMemoryLimit(size)
		wants(t, memory(config.Default()), OK, "the settings allow")
	}
}

func TestMemory(t *testing.T) {
	c := config.Default()
	c.Ingest.MaxSeriesMemory, c.Query.TotalMemory = 1<<30, 1<<30
	c.Ingest.BodyMemory, c.Embedded.HeadBytesMax = 256<<20, 160<<20
	embedded := memoryOf(c)
	if embedded != 2<<30+(256+32+128+160+32)<<20 {
		t.Errorf("with 2 GiB the settings allow %d", embedded)
	}
	c.Store = config.Cassandra
	if got := memoryOf(c); got != 2<<30+(256+32+128+144+64+32)<<20 {
		t.Errorf("over Cassandra they allow %d", got)
	}
	wants(t, memoryFits(4<<30, embedded), OK, "2656.0 MiB of 4096.0 MiB")
	wants(t, memoryFits(2<<30, embedded), Warning, "the machine or its control group has 2048.0 MiB")
	wants(t, memoryFits(0, embedded), OK, "not known")
}

func TestSpace(t *testing.T) {
	const gib = 1 << 30
	wants(t, spaceLeft("disk space", 50*gib, 100*gib, gib, "key"), OK, "50.0 GiB of 100.0 GiB")
	wants(t, spaceLeft("disk space", 10*gib, 100*gib, gib, "key"), Warning, "less than a fifth")
	wants(t, spaceLeft("disk space", gib/2, 100*gib, gib, "key"), Fault, "less than key of 1024.0 MiB: writes are refused")
	wants(t, spaceLeft("disk space", 110*gib, 125*gib, 100*gib, "key"), Fault, "they would not resume below 125.0 GiB")
	wants(t, spaceLeft("disk space", 110*gib, 126*gib, 100*gib, "key"), OK, "110.0 GiB of 126.0 GiB")
	for least, warns := range map[int64]int{0: 0, gib - 1: 1, gib: 0} {
		if found := reserve(least, gib); len(found) != warns {
			t.Errorf("%d bytes kept free: %v", least, found)
		}
	}
}

func TestFileSystems(t *testing.T) {
	for kind, grade := range map[string]Grade{"ext4": OK, "xfs": OK, "tmpfs": Fault, "nfs": Warning, "overlayfs": Warning, "0x1234": Warning} {
		wants(t, judgeKind(kind), grade, kind)
	}
}

func TestClock(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	good := syncState{known: true, synchronised: true, most: 3 * time.Millisecond}
	wants(t, judgeClock(now, now.Add(time.Second), good), OK, "2026-01-02T03:04:05Z, synchronised, at most 3ms off")
	wants(t, judgeClock(now, now, syncState{known: true}), Warning, "not synchronised")
	wants(t, judgeClock(now, now, syncState{}), OK, "not known")
	wants(t, judgeClock(now, now.Add(time.Hour), good), Fault, "was written 1h0m0s after that")
	wants(t, judgeClock(time.Unix(0, 0), time.Time{}, good), Fault, "before this program was built")
}

func TestPorts(t *testing.T) {
	taken := &net.OpError{Err: os.NewSyscallError("bind", syscall.EADDRINUSE)}
	for _, c := range []struct {
		addr    string
		running bool
		err     error
		grade   Grade
		text    string
	}{
		{"127.0.0.1:8080", false, nil, OK, "is free"},
		{"127.0.0.1:8080", true, nil, Warning, "no program listens"},
		{"127.0.0.1:8080", true, taken, OK, "in use, and a server holds"},
		{"127.0.0.1:8080", false, taken, Fault, "another program listens"},
		{"127.0.0.1:2003", false, taken, Warning, "starts without it"},
		{"127.0.0.1:80", false, os.NewSyscallError("bind", syscall.EACCES), Fault, "permission denied"},
		{"192.0.2.1:80", false, errors.New("cannot assign requested address"), Fault, "cannot assign"},
	} {
		wants(t, judgePort(server.Address{Key: "key", Addr: c.addr, Optional: c.addr == config.Default().Server.CarbonAddr}, c.running, c.err), c.grade, c.text)
	}
}

// TestPortsForReal: a TCP or UDP listener of another program is found.
func TestPortsForReal(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	u, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	c := config.Default()
	c.Server.HTTPAddr, c.Server.CarbonUDPAddr = l.Addr().String(), u.LocalAddr().String()
	c.Server.TelnetAddr, c.Server.CarbonAddr, c.Server.PickleAddr = "127.0.0.1:0", "", ""
	found := ports(c, false)
	if len(found) != 3 {
		t.Fatalf("%+v", found)
	}
	wants(t, found[0], Fault, "server.http_addr: another program")
	wants(t, found[1], OK, "server.telnet_addr")
	wants(t, found[2], Fault, "server.carbon_udp_addr: another program")
}

// TestDirectories: permissions, a file in place of a directory, and a directory in use.
func TestDirectories(t *testing.T) {
	dir := t.TempDir()
	private, open := filepath.Join(dir, "private"), filepath.Join(dir, "open")
	for path, mode := range map[string]os.FileMode{private: 0o750, open: 0o755} {
		if err := os.Mkdir(path, mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wants(t, directory("data directory", private, false), OK, private)
	wants(t, directory("data directory", private, true), OK, "in use by a server")
	wants(t, directory("data directory", file, false), Fault, "is a file")
	wants(t, directory("data directory", filepath.Join(private, "new", "data"), false), OK, "new")
	if worldMatters {
		wants(t, directory("data directory", open, false), Warning, "all users of the machine")
	}
	if at, exists := nearest(filepath.Join(private, "new", "data")); at != private || exists {
		t.Errorf("a new directory is made in %s, it exists: %t", at, exists)
	}
	if entries, err := os.ReadDir(private); err != nil || len(entries) != 0 {
		t.Errorf("the doctor has left %v (%v)", entries, err)
	}
	if inUse(private) {
		t.Error("an empty directory is in use")
	}
	lock, err := datadir.Lock(vfs.Default, private)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	// This process holds the lock, which some systems report as no lock. The check must
	// neither fail nor release it.
	inUse(private)
	if _, err := datadir.Lock(vfs.Default, private); err == nil {
		t.Error("looking has released the lock")
	}
}

// TestSettings: settings of the other store, and rules that are missing or invalid.
func TestSettings(t *testing.T) {
	load := func(args ...string) *config.Loaded {
		l, err := config.Load(config.Sources{Args: args})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	wants(t, settings(load())[0], OK, "0 settings set")
	wants(t, settings(load("--cassandra-keyspace=k"))[0], Warning, "flag --cassandra-keyspace: cassandra.keyspace has no effect with store: embedded")
	wants(t, settings(load("--retention-enforce=true"))[0], Warning, "there are no rules to apply")
	if found := rules(load().Config); found != nil {
		t.Errorf("rules without files: %v", found)
	}
	dir := t.TempDir()
	for flag, text := range map[string]string{"--carbon-conf": "[cache]\nUSE_WHITELIST = True\n", "--kairosdb-conf": "kairosdb.filter.list = x\n"} {
		other := filepath.Join(dir, "other.conf")
		if err := os.WriteFile(other, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		wants(t, settings(load(flag, other))[0], Warning, other)
	}
	file := filepath.Join(dir, "storage-schemas.conf")
	for text, want := range map[string]struct {
		grade Grade
		text  string
	}{
		"[all]\npattern = .*\nretentions = 60s:7d\n": {OK, "1 of stages"},
		"[all]\npattern = (\nretentions = 60s:7d\n":  {Fault, file},
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		wants(t, rules(load("--storage-schemas=" + file).Config)[0], want.grade, want.text)
	}
}

// TestCertificates: a certificate that is valid, expires soon, has expired, or has another key.
func TestCertificates(t *testing.T) {
	dir := t.TempDir()
	ends := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	cert, key := selfSigned(t, dir, "a", ends)
	_, other := selfSigned(t, dir, "b", ends)
	day := 24 * time.Hour
	wants(t, certificate(cert, key, ends.Add(-60*day)), OK, "valid until 2027-01-01T00:00:00Z")
	wants(t, certificate(cert, key, ends.Add(-3*day)), Warning, "valid until 2027-01-01T00:00:00Z")
	wants(t, certificate(cert, key, ends.Add(day)), Fault, "has expired")
	wants(t, certificate(cert, key, ends.Add(-1000*day)), Fault, "not before")
	wants(t, certificate(cert, other, ends), Fault, "does not match")
	wants(t, certificate("missing", key, ends), Fault, "missing")
	c := config.Default()
	if found := security(c); len(found) != 0 {
		t.Errorf("of the defaults: %+v", found)
	}
	c.Server.Insecure = true
	wants(t, security(c)[0], Warning, "anyone who can reach")
}

// TestFilesOfSecurity: the other files that a server needs to start.
func TestFilesOfSecurity(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	wants(t, tokens(auth.Config{}, dir), Warning, "nobody has access")
	wants(t, tokens(auth.Config{Rules: []string{"address=10.0.0.1 role=write"}}, dir), OK, "has 0")
	wants(t, tokens(auth.Config{TokenFile: file("half.json", `{"version": 1, "tok`)}, dir), Fault, "half.json")
	if _, _, err := auth.Create(filepath.Join(dir, "tokens.json"), auth.Grant{Name: "me", Rights: principal.Read}, time.Time{}, time.Now()); err != nil {
		t.Fatal(err)
	}
	wants(t, tokens(auth.Config{}, dir), OK, "has 1")

	wants(t, auditLog(filepath.Join(dir, "none", "audit.log")), OK, "will be created")
	wants(t, auditLog(file("audit.log", "")), OK, "audit.log")
	wants(t, auditLog(filepath.Join(file("a file", ""), "audit.log")), Fault, "a file")
	wants(t, auditLog(dir), Fault, dir)

	cert, key := selfSigned(t, dir, "own", time.Now().Add(30*24*time.Hour))
	wants(t, authorities(server.TLSConfig{CertFile: cert, KeyFile: key, ClientCAFile: cert}), OK, cert)
	wants(t, authorities(server.TLSConfig{CertFile: cert, KeyFile: key, ClientCAFile: file("ca.pem", "no certificate")}), Fault, "ca.pem")
}

// selfSigned writes a certificate that is valid for 90 days, and its key.
func selfSigned(t *testing.T, dir, name string, ends time.Time) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: ends.AddDate(0, 0, -90), NotAfter: ends}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

// TestMachine: on any machine all checks finish, and each problem comes with advice.
func TestMachine(t *testing.T) {
	l, err := config.Load(config.Sources{Args: []string{"--data-dir=" + t.TempDir(), "--http-addr=127.0.0.1:0", "--telnet-addr=127.0.0.1:0", "--carbon-addr=", "--pickle-addr="}})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, f := range Machine(l) {
		seen[f.Check]++
		wants(t, f, f.Grade, "")
	}
	for check, n := range map[string]int{"configuration": 1, "audit log": 1, "open files": 1, "data directory": 1, "file system": 1, "disk space": 1, "memory": 1, "clock": 1, "ports": 2} {
		if seen[check] != n {
			t.Errorf("%s: %d findings, want %d", check, seen[check], n)
		}
	}
}

package main

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"varve/internal/config"
)

const (
	dataDir       = "/var/lib/varve"
	containerUser = 65532
)

func deployed(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// loaded loads a configuration from the text of a file and environment variables.
func loaded(t *testing.T, file string, environment ...string) config.Config {
	t.Helper()
	l, err := config.Load(config.Sources{Environment: append(environment, "VARVE_CONFIG=file"), ReadFile: func(string) ([]byte, error) { return []byte(file), nil }})
	if err != nil {
		t.Fatalf("%v in\n%s", err, file)
	}
	return l.Config
}

// checkAsks checks that a server that other machines can reach requires authentication, or
// sets server.insecure. Otherwise it would not start.
func checkAsks(t *testing.T, c config.Config, asks bool) {
	t.Helper()
	if c.Auth.Enabled != asks || c.Server.Insecure == asks {
		t.Errorf("auth.enabled is %t, server.insecure %t", c.Auth.Enabled, c.Server.Insecure)
	}
}

// ports returns the ports of a configuration's listeners, by their names in manifests.
func ports(t *testing.T, c config.Config) map[string]int {
	t.Helper()
	all := map[string]int{}
	for name, addr := range map[string]string{"http": c.Server.HTTPAddr, "telnet": c.Server.TelnetAddr, "carbon": c.Server.CarbonAddr, "pickle": c.Server.PickleAddr} {
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			t.Fatal(err)
		}
		if all[name], err = strconv.Atoi(port); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// outcommented matches a commented-out setting, which operators may enable.
var outcommented = regexp.MustCompile(`(?m)^#((?:  )?[a-z_]+:)`)

// TestDebianConfig: the configuration of the package is valid, both as shipped and with all
// commented-out settings enabled, and its settings do not contradict the defaults.
func TestDebianConfig(t *testing.T) {
	text := deployed(t, "debian/varve.yaml")
	c := loaded(t, text)
	standard := config.Default()
	standard.DataDir = dataDir
	if changed := config.Changed(&standard, &c); len(changed) != 0 {
		t.Errorf("the package changes %v beside data_dir", changed)
	}
	all := outcommented.ReplaceAllString(text, "$1")
	if n := len(outcommented.FindAllString(text, -1)); n < 12 {
		t.Errorf("only %d settings are shown", n)
	}
	c = loaded(t, all)
	if c.Store != config.Cassandra || len(c.Cassandra.Hosts) != 2 {
		t.Errorf("store %s, hosts %v", c.Store, c.Cassandra.Hosts)
	}
	for name, port := range ports(t, c) {
		if want := ports(t, standard)[name]; port != want {
			t.Errorf("%s is shown on port %d, and is on %d", name, port, want)
		}
	}
}

// TestUnit: the unit runs the installed binary, and its stop timeout covers the server's.
func TestUnit(t *testing.T) {
	values := map[string][]string{}
	for line := range strings.Lines(deployed(t, "debian/varve.service")) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(key, "#") {
			values[key] = append(values[key], value)
		}
	}
	for key, want := range map[string]string{
		"ExecStart":      "/usr/bin/varve serve --config /etc/varve/varve.yaml",
		"Type":           "notify",
		"StateDirectory": strings.TrimPrefix(dataDir, "/var/lib/"), "User": "varve", "ProtectSystem": "strict", "NoNewPrivileges": "yes",
		"CapabilityBoundingSet": "", "Restart": "on-failure",
	} {
		if got := values[key]; len(got) != 1 || got[0] != want {
			t.Errorf("%s=%v, want %s", key, got, want)
		}
	}
	standard := config.Default()
	if seconds, err := strconv.Atoi(values["TimeoutStopSec"][0]); err != nil || time.Duration(seconds)*time.Second < 2*standard.Server.ShutdownTimeout {
		t.Errorf("TimeoutStopSec=%v, server.shutdown_timeout is %v", values["TimeoutStopSec"], standard.Server.ShutdownTimeout)
	}
	if files, err := strconv.Atoi(values["LimitNOFILE"][0]); err != nil || files < 4*standard.Server.MaxConnections {
		t.Errorf("LimitNOFILE=%v", values["LimitNOFILE"])
	}
}

// TestDockerfile: the image's variables are settings; it exposes the ports and stores its
// data in the directory that they name.
func TestDockerfile(t *testing.T) {
	text := deployed(t, "docker/Dockerfile")
	variables := regexp.MustCompile(`VARVE_[A-Z_]+=[^ \n]+`).FindAllString(text[strings.Index(text, "\nENV "):], -1)
	c := loaded(t, "", variables...)
	for _, want := range []string{"\nFROM scratch\n", "\nUSER " + strconv.Itoa(containerUser) + ":", "\nVOLUME " + c.DataDir + "\n",
		`CMD ["/usr/bin/varve", "health"]`, "\nENTRYPOINT [\"/usr/bin/varve\"]\nCMD [\"serve\"]\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q", want)
		}
	}
	var shown []int
	for _, word := range strings.Fields(regexp.MustCompile(`\nEXPOSE (.*)\n`).FindStringSubmatch(text)[1]) {
		port, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		shown = append(shown, port)
	}
	for name, port := range ports(t, c) {
		if !slices.Contains(shown, port) {
			t.Errorf("%s is on port %d, shown are %v", name, port, shown)
		}
	}
	checkAsks(t, c, true)
	if c.DataDir != dataDir || !strings.HasPrefix(c.Server.HTTPAddr, "0.0.0.0:") {
		t.Errorf("data in %s, HTTP on %s", c.DataDir, c.Server.HTTPAddr)
	}
}

// TestCompose: the example's variables are settings, and its ports are those of the image.
func TestCompose(t *testing.T) {
	var compose struct {
		Services map[string]struct {
			Build       map[string]string
			Environment map[string]string
			Ports       []string
			Volumes     []string
			DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
		}
		Volumes map[string]any
	}
	if err := yaml.Unmarshal([]byte(deployed(t, "docker/compose.yaml")), &compose); err != nil {
		t.Fatal(err)
	}
	varve := compose.Services["varve"]
	var variables []string
	for name, value := range varve.Environment {
		variables = append(variables, name+"="+value)
	}
	c := loaded(t, "", variables...)
	if host := c.Cassandra.Hosts[0]; c.Store != config.Cassandra || compose.Services[host].Volumes == nil || varve.DependsOn[host].Condition != "service_healthy" {
		t.Errorf("store %s at %v", c.Store, c.Cassandra.Hosts)
	}
	if _, err := os.Stat(filepath.Join("..", "..", varve.Build["dockerfile"])); err != nil || varve.Build["context"] != "../.." {
		t.Errorf("%v, built in %s", err, varve.Build["context"])
	}
	checkAsks(t, c, false)
	var want []string
	for _, port := range ports(t, c) {
		want = append(want, "127.0.0.1:"+strconv.Itoa(port)+":"+strconv.Itoa(port))
	}
	slices.Sort(want)
	slices.Sort(varve.Ports)
	if !slices.Equal(varve.Ports, want) || !slices.Contains(varve.Volumes, "varve:"+dataDir) {
		t.Errorf("ports %v, want %v; volumes %v", varve.Ports, want, varve.Volumes)
	}
}

// The parts of manifests that this test compares with the program.
type (
	manifest struct {
		Kind     string
		Metadata struct{ Name string }
		Data     map[string]string
		Spec     struct {
			ServiceName string `yaml:"serviceName"`
			Ports       []struct {
				Name, TargetPort string
				Port             int
			}
			Selector map[string]any
			Template struct {
				Metadata struct{ Labels, Annotations map[string]string }
				Spec     podSpec
			}
			VolumeClaimTemplates []struct{ Metadata struct{ Name string } } `yaml:"volumeClaimTemplates"`
		}
	}
	podSpec struct {
		Grace           int `yaml:"terminationGracePeriodSeconds"`
		SecurityContext struct {
			RunAsUser    int  `yaml:"runAsUser"`
			FSGroup      int  `yaml:"fsGroup"`
			RunAsNonRoot bool `yaml:"runAsNonRoot"`
		} `yaml:"securityContext"`
		Containers []struct {
			Args  []string
			Env   []struct{ Name, Value string }
			Ports []struct {
				Name string
				Port int `yaml:"containerPort"`
			}
			Readiness       probe `yaml:"readinessProbe"`
			Liveness        probe `yaml:"livenessProbe"`
			SecurityContext struct {
				ReadOnly  bool `yaml:"readOnlyRootFilesystem"`
				Escalates bool `yaml:"allowPrivilegeEscalation"`
			} `yaml:"securityContext"`
			Mounts []struct{ Name, MountPath string } `yaml:"volumeMounts"`
		}
		Volumes []struct{ Name string }
	}
	probe struct {
		HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
	}
)

func manifests(t *testing.T, name string) map[string]manifest {
	t.Helper()
	// Keys of Kubernetes are in camelCase; the few without a tag are lower-cased here.
	text := strings.NewReplacer("targetPort:", "targetport:", "mountPath:", "mountpath:").Replace(deployed(t, "kubernetes/"+name))
	all := map[string]manifest{}
	for d := yaml.NewDecoder(bytes.NewReader([]byte(text))); ; {
		var m manifest
		err := d.Decode(&m)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all[m.Kind+" "+m.Metadata.Name] = m
	}
}

// TestKubernetes: the ports, paths and directories of the manifests agree with the
// configuration beside them.
func TestKubernetes(t *testing.T) {
	routes, err := os.ReadFile(filepath.Join("..", "..", "cmd", "varve", "testdata", "routes.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"embedded.yaml", "cassandra.yaml"} {
		t.Run(name, func(t *testing.T) {
			all := manifests(t, name)
			c := loaded(t, all["ConfigMap varve"].Data["varve.yaml"])
			set := all["StatefulSet varve"]
			pod := set.Spec.Template.Spec
			server := pod.Containers[0]
			checkAsks(t, c, true)
			listening := ports(t, c)
			for _, p := range server.Ports {
				if listening[p.Name] != p.Port {
					t.Errorf("port %s: %d, the server has %d", p.Name, p.Port, listening[p.Name])
				}
			}
			for key, m := range all {
				for _, p := range m.Spec.Ports {
					if listening[p.TargetPort] != p.Port {
						t.Errorf("%s: port %d leads to %s", key, p.Port, p.TargetPort)
					}
				}
			}
			for _, p := range []probe{server.Readiness, server.Liveness} {
				if p.HTTPGet.Port != "http" || !regexp.MustCompile(`(?m)^GET +`+regexp.QuoteMeta(p.HTTPGet.Path)+` public$`).Match(routes) {
					t.Errorf("probe %+v is no public route", p)
				}
			}
			if len(server.Ports) != len(listening) || all["Service "+set.Spec.ServiceName].Kind == "" || !slices.Equal(server.Args, []string{"serve"}) {
				t.Errorf("ports %v, service %s, args %v", server.Ports, set.Spec.ServiceName, server.Args)
			}
			checkMounts(t, c, set)
			if s := pod.SecurityContext; s.RunAsUser != containerUser || s.FSGroup != containerUser || !s.RunAsNonRoot || !server.SecurityContext.ReadOnly || server.SecurityContext.Escalates {
				t.Errorf("security %+v %+v", s, server.SecurityContext)
			}
			if time.Duration(pod.Grace)*time.Second < 2*c.Server.ShutdownTimeout {
				t.Errorf("%d s to stop, server.shutdown_timeout is %v", pod.Grace, c.Server.ShutdownTimeout)
			}
			if a := set.Spec.Template.Metadata.Annotations; a["prometheus.io/port"] != strconv.Itoa(listening["http"]) || !bytes.Contains(routes, []byte(a["prometheus.io/path"]+" ")) {
				t.Errorf("annotations %v", a)
			}
		})
	}
}

// checkMounts checks that all mounted volumes exist, that the data directory is a volume
// of the pod itself, and that the configuration has the path in the variable.
func checkMounts(t *testing.T, c config.Config, set manifest) {
	t.Helper()
	pod := set.Spec.Template.Spec
	var volumes []string
	for _, v := range pod.Volumes {
		volumes = append(volumes, v.Name)
	}
	claim := set.Spec.VolumeClaimTemplates[0].Metadata.Name
	at := map[string]string{}
	for _, m := range pod.Containers[0].Mounts {
		at[m.MountPath] = m.Name
		if m.Name != claim && !slices.Contains(volumes, m.Name) {
			t.Errorf("mount %s of no volume", m.Name)
		}
	}
	if at[c.DataDir] != claim {
		t.Errorf("data_dir %s is on %q, want %s", c.DataDir, at[c.DataDir], claim)
	}
	if env := pod.Containers[0].Env[0]; env.Name != "VARVE_CONFIG" || at[filepath.Dir(env.Value)] != "config" {
		t.Errorf("%v, mounted %v", env, at)
	}
	if file := c.Auth.TokenFile; file != "" && at[filepath.Dir(file)] != "tokens" {
		t.Errorf("tokens in %s, mounted %v", file, at)
	}
	if file := c.Cassandra.PasswordFile; file != "" && at[filepath.Dir(file)] != "cassandra" {
		t.Errorf("password in %s, mounted %v", file, at)
	}
}

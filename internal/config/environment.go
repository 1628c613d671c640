package config

import (
	"regexp"
	"slices"
	"strings"
)

const environmentPrefix = "VARVE_"

// variableOf is the environment variable of a flag, or of the key of a setting.
func variableOf(name string) string {
	return environmentPrefix + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(name))
}

// environmentClient are variables of commands that ask a running server.
var environmentClient = []string{environmentPrefix + "TOKEN", environmentPrefix + "CA_FILE"}

// kubernetesService matches the variables that Kubernetes puts into every
// container beside a service called varve. They are not meant for us.
var kubernetesService = regexp.MustCompile(
	`^VARVE_(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// applyEnvironment applies variables, each of the form name=value.
func (l *layers) applyEnvironment(variables []string) {
	names, byName := l.names(field.environment)
	for _, flag := range fileFlags {
		names = append(names, variableOf(flag))
	}
	for _, variable := range slices.Sorted(slices.Values(variables)) {
		name, text, _ := strings.Cut(variable, "=")
		f, known := byName[name]
		switch {
		case known:
			l.set(f, text, "environment "+name)
		case !strings.HasPrefix(name, environmentPrefix), slices.Contains(names, name), slices.Contains(environmentClient, name), kubernetesService.MatchString(name):
		default:
			l.fail("environment: unknown variable %s%s", name, l.orRemoved(name, field.environment, func() string {
				return orNearest(name, names, "_", "")
			}))
		}
	}
}

// fromEnvironment returns the value of a variable, "" if it is not there.
func fromEnvironment(variables []string, name string) string {
	for _, variable := range variables {
		if text, ok := strings.CutPrefix(variable, name+"="); ok {
			return text
		}
	}
	return ""
}

// Package carbonconf reads carbon.conf, the configuration of carbon-cache, and maps it to
// settings of Varve.
//
// Only the section [cache] is mapped: separate relays and aggregators keep running in front
// of Varve. Listeners that the file does not mention keep Varve's defaults, not carbon's.
//
// Source of names and defaults: conf.py and carbon.conf.example of carbon 1.1.10.
package carbonconf

import (
	"cmp"
	"net"
	"path/filepath"
	"strconv"
	"strings"

	"varve/internal/foreign"
	"varve/internal/ini"
)

// cacheSection is the section of carbon-cache. Further instances have sections such as
// [cache:b].
const cacheSection = "cache"

// Parse parses a carbon.conf. path is its path: without CONF_DIR in the file, carbon reads
// the storage rules from the same directory. exists reports whether a file exists.
func Parse(path, text string, exists func(path string) bool) foreign.Mapping {
	sections, err := ini.Parse(text)
	if err != nil {
		return foreign.Mapping{Faults: []error{err}}
	}
	m := mapper{values: map[string]string{}, used: map[string]bool{}}
	m.sections(sections)
	m.listener("server.carbon_addr", "LINE_RECEIVER", "2003")
	m.listener("server.pickle_addr", "PICKLE_RECEIVER", "2004")
	m.datagrams()
	m.limit("carbon.max_pickle", "PICKLE_RECEIVER_MAX_LENGTH")
	m.limit("carbon.max_connections", "MAX_RECEIVER_CONNECTIONS")
	m.rules(filepath.Dir(path), exists)
	m.rest()
	m.Sort()
	return m.Mapping
}

// A mapper turns the values of [cache] into a Mapping.
type mapper struct {
	foreign.Mapping
	values map[string]string // by key in capitals, as carbon writes them
	used   map[string]bool
}

func (m *mapper) refuse(key, value, want string) { m.Fail(key, "%.100q: want %s", value, want) }

// sections stores the values of [cache], and adds a note or warning for each other section.
func (m *mapper) sections(sections []ini.Section) {
	found := false
	for _, s := range sections {
		program, instance, _ := strings.Cut(s.Name, ":")
		switch name := "[" + s.Name + "]"; {
		case s.Name == cacheSection:
			found = true
			for key, value := range s.Values {
				m.values[strings.ToUpper(key)] = value
			}
		case program == cacheSection && instance != "":
			m.Warn(name, "Varve is one process and listens at the addresses in [cache]: point the senders of other instances there")
		case program == "relay" || program == "aggregator" || program == "aggregator-cache":
			m.Note(name, "relays and aggregators keep running in front of Varve")
		default:
			m.Unknown = append(m.Unknown, name)
		}
	}
	if !found {
		m.Warn("["+cacheSection+"]", "the file has no such section, so it does not configure carbon-cache")
	}
}

// take returns the value of a key and marks the key as used.
func (m *mapper) take(key string) string {
	m.used[key] = true
	return m.values[key]
}

// listener maps PREFIX_INTERFACE and PREFIX_PORT to an address. Port 0 turns a listener off.
func (m *mapper) listener(key, prefix, standard string) {
	host, port := m.take(prefix+"_INTERFACE"), m.take(prefix+"_PORT")
	from := prefix + "_PORT"
	switch n, err := strconv.ParseUint(cmp.Or(port, standard), 10, 16); {
	case host == "" && port == "":
	case err != nil:
		m.refuse(from, port, "a port")
	case n == 0:
		m.Set(from, key, "")
	default:
		m.Set(from, key, net.JoinHostPort(cmp.Or(host, "0.0.0.0"), strconv.FormatUint(n, 10)))
	}
}

// datagrams maps the UDP listener, which is off by default.
func (m *mapper) datagrams() {
	const enable = "ENABLE_UDP_LISTENER"
	value := m.take(enable)
	host, port := m.take("UDP_RECEIVER_INTERFACE"), m.take("UDP_RECEIVER_PORT")
	on, known := truth(value)
	n, err := strconv.ParseUint(cmp.Or(port, "2003"), 10, 16)
	switch {
	case !known:
		m.refuse(enable, value, "true or false")
	case err != nil:
		m.refuse("UDP_RECEIVER_PORT", port, "a port")
	case on && n > 0:
		m.Set(enable, "server.carbon_udp_addr", net.JoinHostPort(cmp.Or(host, "0.0.0.0"), strconv.FormatUint(n, 10)))
	case value != "":
		m.Set(enable, "server.carbon_udp_addr", "")
	}
}

// truth parses a value as Python's getboolean does; "" is false.
func truth(value string) (on, known bool) {
	switch strings.ToLower(value) {
	case "1", "yes", "true", "on":
		return true, true
	case "", "0", "no", "false", "off":
		return false, true
	}
	return false, false
}

// limit maps a whole number. For an infinite limit, Varve keeps its own, because all of
// its limits are finite.
func (m *mapper) limit(key, from string) {
	value := m.take(from)
	switch n, err := strconv.ParseUint(value, 10, 31); {
	case value == "":
	case strings.EqualFold(value, "inf"):
		m.Note(from, "every limit of Varve is finite: "+key)
	case err != nil || n == 0:
		m.refuse(from, value, "a whole number from 1 on")
	default:
		m.Set(from, key, strconv.FormatUint(n, 10))
	}
}

// rules maps CONF_DIR to the paths of storage-schemas.conf and storage-aggregation.conf.
// beside is the directory of carbon.conf.
func (m *mapper) rules(beside string, exists func(string) bool) {
	dir := cmp.Or(m.take("CONF_DIR"), beside)
	schemas, aggregation := filepath.Join(dir, "storage-schemas.conf"), filepath.Join(dir, "storage-aggregation.conf")
	if !exists(schemas) { // carbon does not start without it
		m.Warn("CONF_DIR", schemas+" does not exist: graphite.storage_schemas is not set")
		return
	}
	m.Set("CONF_DIR", "graphite.storage_schemas", schemas)
	if exists(aggregation) {
		m.Set("CONF_DIR", "graphite.storage_aggregation", aggregation)
	}
}

// rest adds a note or warning for each key that is not used, or lists it as unknown.
func (m *mapper) rest() {
	for key, value := range m.values {
		if m.used[key] {
			continue
		}
		switch warning := warningAbout(key, value); {
		case warning != "":
			m.Warn(key, warning)
		case reasonFor(key) != "":
			m.Note(key, reasonFor(key))
		default:
			m.Unknown = append(m.Unknown, key)
		}
	}
}

// warningAbout returns what is lost because Varve ignores a key with this value, "" if
// nothing is.
func warningAbout(key, value string) string {
	on, _ := truth(value)
	switch {
	case key == "USE_WHITELIST" && on:
		return "Varve accepts every metric: let a relay drop what whitelist.conf and blacklist.conf exclude"
	case key == "ENABLE_AMQP" && on:
		return "Varve does not read from AMQP: let a relay do so"
	case key == "ENABLE_MANHOLE" && on:
		return "Varve has no such part"
	case key == "PROTOBUF_RECEIVER_PORT" && value != "0":
		return "Varve takes lines and pickles: let senders use one of these instead of protobuf"
	case key == "DATABASE" && value != "whisper" && value != "":
		return "varve import reads Whisper's files only"
	case key == "METRIC_CLIENT_IDLE_TIMEOUT" && value != "None" && value != "":
		return "idle connections stay until carbon.max_connections is reached; then the one that was silent for longest is closed"
	}
	return ""
}

// reasons say why keys set nothing. A word that ends in * matches all keys with this
// prefix. The first match wins.
var reasons = []struct{ keys, why string }{
	{"STORAGE_DIR LOCAL_DATA_DIR WHITELISTS_DIR DATABASE", "Varve keeps its data in data_dir; varve import whisper reads the files of Graphite"},
	{"LOG_* ENABLE_LOGROTATION PID_DIR USER RAVEN_DSN", "the log of Varve goes to standard error, and a service manager runs it as a user"},
	{"CACHE_QUERY_* USE_INSECURE_UNPICKLER", "graphite-web reads over HTTP: docs/graphite.md"},
	{"CARBON_METRIC_*", "metrics of Varve are at /internal/metrics"},
	{"ENABLE_TAGS TAG_* GRAPHITE_URL", "series are found by their tags once they have a point"},
	{"MIN_TIMESTAMP_RESOLUTION", "times are kept as they were sent; of the points in a step the last one counts"},
	{"USE_WHITELIST ENABLE_AMQP AMQP_* BIND_PATTERNS ENABLE_MANHOLE MANHOLE_* PROTOBUF_RECEIVER_* METRIC_CLIENT_IDLE_TIMEOUT", "it is off, or belongs to a part that is off"},
	{"MAX_CACHE_SIZE MAX_UPDATES_* MAX_CREATES_* MIN_TIMESTAMP_LAG CACHE_* USE_FLOW_CONTROL WHISPER_* CERES_* WRITE_BACK_* TCP_KEEP*", "Varve needs no such setting"},
	{"MAX_DATAPOINTS_* MAX_AGGREGATION_* FORWARD_ALL MAX_QUEUE_* QUEUE_LOW_* TIME_TO_DEFER_* RELAY_* DYNAMIC_ROUTER ROUTER_* REPLICATION_* DIVERSE_* DESTINATION* USE_RATIO_RESET MIN_RESET_* AGGREGATION_RULES REWRITE_RULES", "it is for relays and aggregators"},
}

// reasonFor returns why a key sets nothing, "" if the key is not known.
func reasonFor(key string) string {
	for _, r := range reasons {
		for word := range strings.FieldsSeq(r.keys) {
			beginning, more := strings.CutSuffix(word, "*")
			if key == word || more && strings.HasPrefix(key, beginning) {
				return r.why
			}
		}
	}
	return ""
}

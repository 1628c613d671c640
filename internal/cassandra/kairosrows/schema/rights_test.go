package schema

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/cassandra/kairosrows/kairosrowstest"
	"varve/internal/originals"
)

// TestRights: users who may not create anything, on a node that does not let
// itself be filtered.
func TestRights(t *testing.T) {
	if !*longKeyspaces {
		t.Skip("starts a Cassandra node of its own; run with -cassandra.long")
	}
	cluster := originals.StartCluster(t, originals.ClusterOptions{YAML: `
authenticator: PasswordAuthenticator
authorizer: CassandraAuthorizer
permissions_validity: 100ms
allow_filtering_enabled: false
`})
	config := cqltest.Config(cluster.Addresses()...)
	config.Username, config.Password = "cassandra", "cassandra"
	admin := cqltest.Keyspace(t, config, cql.Options{})
	kairosrowstest.Load(t, admin, "narrow")
	cqltest.Must(t, admin, "CREATE ROLE clerk WITH PASSWORD = 'c' AND LOGIN = true",
		fmt.Sprintf("GRANT SELECT ON KEYSPACE %s TO clerk", admin.KeyspaceName()),
		fmt.Sprintf("GRANT MODIFY ON KEYSPACE %s TO clerk", admin.KeyspaceName()))
	config.Username, config.Password = "clerk", "c"
	missing := config
	missing.Keyspace = cqltest.Name()
	config.Keyspace = admin.KeyspaceName()
	clerk := cqltest.Open(t, config, cql.Options{})

	ks := mustOpen(t, clerk, nil)
	if ks.Tables.Own || ks.IndexShards != 0 || len(ks.Notes) != 3 || !strings.Contains(ks.Notes[0], "varve_spec cannot be created") {
		t.Errorf("without rights: %+v, notes %q", ks.Tables, ks.Notes)
	}
	checkRecordedKeys(t, ks) // walks where it may not filter
	if err := ks.Set(t.Context(), "dash", "third", "k", "v"); err != nil {
		t.Error(err)
	}
	if got := slices.Sorted(slices.Values(collect(t, ks.ServiceKeys(t.Context(), "dash")))); !slices.Equal(got, []string{"home", "other", "third"}) {
		t.Errorf("service keys are %q", got)
	}

	if got := preflightOf(t, config); !strings.Contains(got, "clerk lacks CREATE") || !strings.Contains(got, "clerk may read and write") {
		t.Errorf("preflight without the right to create:\n%s", got)
	}
	cqltest.Must(t, admin, fmt.Sprintf("REVOKE MODIFY ON KEYSPACE %s FROM clerk", admin.KeyspaceName()))
	for until := time.Now().Add(time.Minute); ; { // nodes believe in rights for permissions_validity
		got := preflightOf(t, config)
		if strings.Contains(got, "bad rights: clerk lacks MODIFY on data_points, ") && strings.Contains(got, "GRANT MODIFY ON KEYSPACE") {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("preflight without the right to write:\n%s", got)
		}
	}
	cqltest.Must(t, admin, fmt.Sprintf("GRANT MODIFY ON KEYSPACE %s TO clerk", admin.KeyspaceName()))

	// An administrator made the tables.
	mustOpen(t, admin, nil)
	if ks := mustOpen(t, clerk, nil); !ks.Tables.Own || ks.IndexShards != 4 || len(ks.Notes) != 0 {
		t.Errorf("with all tables: %+v, notes %q", ks.Tables, ks.Notes)
	}

	for _, c := range []struct {
		what   string
		change func(*Config)
		want   string
	}{
		{"keyspace", func(c *Config) { c.Create = CreateKeyspace }, "let an administrator create the keyspace"},
		{"no keyspace", func(c *Config) { c.Create = CreateTables }, "cassandra.schema.create: keyspace"},
	} {
		_, err := openWith(t, cqltest.Open(t, missing, cql.Options{}), c.change)
		var refused *cql.TableError
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.what, err)
		}
		t.Log(err)
	}
	cqltest.Must(t, admin, "DROP TABLE row_keys")
	_, err := openWith(t, clerk, nil)
	var refused *cql.TableError
	if !errors.As(err, &refused) || refused.Table != rowKeysTable || !strings.Contains(err.Error(), "grant the user the right") {
		t.Errorf("a table is missing: %v", err)
	}
	t.Log(err)
}

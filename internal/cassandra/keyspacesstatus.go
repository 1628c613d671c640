package cassandra

import "context"

// A KeyspaceStatus describes the state of a further keyspace.
type KeyspaceStatus struct {
	Name    string
	Metrics []string // which metrics it stores, as in the settings
	Status
}

// Status returns the current state of the first keyspace, and of the further ones.
func (k *Keyspaces) Status() (Status, []KeyspaceStatus) {
	var further []KeyspaceStatus
	for i, words := range k.words {
		further = append(further, KeyspaceStatus{k.names[i+1], words, k.stores[i+1].Status()})
	}
	return k.stores[0].Status(), further
}

// Healthy returns nil while at least one keyspace accepts samples, otherwise why none does: a
// load balancer should continue to send samples for the others.
func (k *Keyspaces) Healthy() (first error) {
	for i, s := range k.stores {
		err := s.Healthy()
		if err == nil {
			return nil
		}
		if i == 0 {
			first = err
		}
	}
	return first
}

// Degraded is Store.Degraded of the first keyspace.
func (k *Keyspaces) Degraded() error { return k.stores[0].Degraded() }

// Others lists the clusters other than that of the first keyspace: whether the samples of
// further keyspaces can be written, and whether read-only clusters answer.
func (k *Keyspaces) Others() []Health {
	others := k.stores[0].Others()
	for i, s := range k.stores[1:] {
		others = append(others, Health{k.names[i+1], func(context.Context) error { return s.Degraded() }})
	}
	return others
}

// Writers lists whether each keyspace accepts samples. It is empty if there is only one, which
// Healthy describes.
func (k *Keyspaces) Writers() []Health {
	if len(k.stores) == 1 {
		return nil
	}
	var writers []Health
	for i, s := range k.stores {
		writers = append(writers, Health{k.names[i], func(context.Context) error { return s.Healthy() }})
	}
	return writers
}

package retention

// Config says what is done with the rules.
type Config struct {
	Enforce bool `yaml:"enforce" doc:"Thin out and remove samples as the rules of graphite.storage_schemas say, for all series and protocols: what is older than the first stage is kept as buckets of the next one, and what is older than the last one goes. Without it the rules only say on which step Graphite's API reads, and every sample is kept. Only with store: embedded."`
}

{{ define "y" }}child 2 y{{ end }}{{ define "only" }}only 2{{ end }}

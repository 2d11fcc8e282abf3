{{ define "x" }}child{{ end }}{{ define "y" }}child y{{ end }}

"""Certificates that `cxlpool pki` does not make: with any beginning and end, by openssl(1)."""

import subprocess
from datetime import datetime, timedelta, timezone

CONFIG = '''
[ca]
default_ca = it
[it]
new_certs_dir = {work}
database = {work}/index
serial = {work}/serial
default_md = sha256
policy = any
unique_subject = no
[any]
commonName = supplied
[leaf]
basicConstraints = critical,CA:FALSE
extendedKeyUsage = {usage}
subjectAltName = {names}
'''


def reissue(pki, stem, begin, end):
    """Replaces PKI/STEM.pem by one for the same key and identity, valid from `begin` to `end` (timedelta from now)."""
    role, name = stem.split('-', 1)
    work = pki / f'work-{stem}'
    work.mkdir(exist_ok=True)
    (work / 'index').write_text('')
    (work / 'serial').write_text(datetime.now().strftime('01%H%M%S%f'))
    names = f'URI:cxlpool://{role}/{name}'
    if role == 'manager':
        names += ',DNS:fm.cxlpool,DNS:localhost,IP:127.0.0.1'
    (work / 'config').write_text(CONFIG.format(work=work, names=names,
                                               usage='serverAuth' if role == 'manager' else 'clientAuth'))
    stamp = '%Y%m%d%H%M%SZ'
    now = datetime.now(timezone.utc)

    def openssl(*words):
        subprocess.run(['openssl', *map(str, words)], check=True, capture_output=True)
    openssl('req', '-new', '-key', pki / f'{stem}.key', '-subj', f'/CN={name}', '-out', work / 'request')
    openssl('ca', '-batch', '-notext', '-config', work / 'config', '-extensions', 'leaf', '-cert', pki / 'ca.pem',
            '-keyfile', pki / 'ca.key', '-in', work / 'request', '-out', work / 'leaf', '-startdate',
            (now + begin).strftime(stamp), '-enddate', (now + end).strftime(stamp))
    (pki / f'{stem}.pem').write_bytes((work / 'leaf').read_bytes())


def expire(pki, stem):
    """It ended an hour ago."""
    reissue(pki, stem, timedelta(days=-2), timedelta(hours=-1))

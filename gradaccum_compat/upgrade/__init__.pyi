from gradaccum_compat.upgrade.carrying import carry_over as carry_over
from gradaccum_compat.upgrade.comparing import compare as compare
from gradaccum_compat.upgrade.recording import record as record
from gradaccum_compat.upgrade.verifying import verify as verify
